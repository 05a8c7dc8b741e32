//! What operators share and write, for programs in archives, where no schema is at hand.
//!
//! `facts.txt` holds what `python/mutcanon/_check_facts.py` reads off schemas, one operator a line, sorted; it is
//! written by `tools/check_facts.py`. Of an operator that is not listed nothing is known: it may share storage with all
//! its tensors, and it matters when it runs.

use std::sync::LazyLock;

static TABLE: LazyLock<Vec<&'static str>> = LazyLock::new(|| include_str!("facts.txt").lines().skip(1).collect());

/// How a result relates to arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It is the argument.
    Same,
    /// It shows the argument.
    View,
    /// It may share storage with some of the arguments.
    May,
}

/// The facts of one operator; arguments are named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// What it is called, after the functional operator that computes the same.
    pub name: &'static str,
    /// What results share: the relation, the result or all of them, the arguments.
    pub shares: Vec<(Relation, Option<u32>, Vec<&'static str>)>,
    /// What is written, and the result that it becomes.
    pub writes: Vec<(&'static str, Option<u32>)>,
    /// Every result may share storage with every tensor.
    pub may_share_all: bool,
    /// The result has the first argument's quantizer.
    pub keeps: bool,
    /// It matters when it runs.
    pub is_impure: bool,
}

fn name_of(line: &str) -> &str {
    line.split(' ').next().unwrap_or(line)
}

/// The facts of an operator, by the name that archives give it; none if it is not listed.
#[must_use]
pub fn facts(name: &str) -> Option<Facts> {
    let at = TABLE.binary_search_by(|line| name_of(line).cmp(name)).ok()?;
    let mut words = TABLE[at].split(' ');
    let mut facts = Facts { name: words.next()?, ..Facts::default() };
    for word in words {
        match word.split_once('=') {
            Some(("as", name)) => facts.name = name,
            Some(("writes", written)) => facts.writes.push(match written.split_once(':') {
                Some((argument, result)) => (argument, result.parse().ok()),
                None => (written, None),
            }),
            Some((relation, share)) => {
                let relation = match relation {
                    "same" => Relation::Same,
                    "view" => Relation::View,
                    _ => Relation::May,
                };
                let (result, arguments) = share.split_once(':')?;
                facts.shares.push((relation, result.parse().ok(), arguments.split(',').collect()));
            }
            None => match word {
                "all" => facts.may_share_all = true,
                "keeps" => facts.keeps = true,
                _ => facts.is_impure = true,
            },
        }
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(TABLE.is_sorted_by_key(|line| name_of(line)));
    }

    #[test]
    fn operators_are_found_by_name() {
        let add = facts("aten.add_.Tensor").unwrap_or_default();
        assert_eq!(add.name, "aten.add.Tensor");
        assert_eq!(add.shares, [(Relation::Same, Some(0), vec!["self"])]);
        assert_eq!(add.writes, [("self", Some(0))]);
        let split = facts("aten.split.Tensor").unwrap_or_default();
        assert_eq!(split.shares, [(Relation::View, None, vec!["self"])]);
        let dropout = facts("aten.dropout.default").unwrap_or_default();
        assert!(dropout.may_share_all && dropout.is_impure);
        assert!(facts("aten.index_put.default").unwrap_or_default().keeps);
        assert_eq!(facts("mine.op.default"), None);
    }
}
