//! What operators may alias and what they write, without torch.
//!
//! `ops/*.txt` hold what the torch path reads off schemas (`python/mutcanon/_alias.py`), written by
//! `tools/alias_table.py`: one line an operator, sorted. An operator that is not listed may alias all of its tensors.
//! Whether it writes some we cannot know either; it cannot where torch's verifier has refused operators that do.

use std::sync::LazyLock;

static TABLES: LazyLock<[Vec<&'static str>; 3]> = LazyLock::new(|| {
    let tables = [include_str!("ops/torch.txt"), include_str!("ops/torchao.txt"), include_str!("ops/executorch.txt")];
    tables.map(|table| table.lines().skip(1).collect())
});

fn name_of(line: &str) -> &str {
    line.split(' ').next().unwrap_or(line)
}

/// A set of an operator's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// Those with these names, separated by commas. Empty for none.
    Named(&'static str),
    /// Every tensor.
    All,
}

impl Arguments {
    const NONE: Arguments = Arguments::Named("");

    /// Whether there is none.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Arguments::NONE
    }

    /// Whether the argument of this name is one of them.
    #[must_use]
    pub fn has(self, name: &str) -> bool {
        match self {
            Arguments::All => true,
            Arguments::Named(names) => !names.is_empty() && names.split(',').any(|n| n == name),
        }
    }
}

/// The facts of one operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The arguments that a result may share storage with.
    pub aliases: Arguments,
    /// The arguments that are written in place.
    pub writes: Arguments,
    /// Whether the result keeps the representation of the first argument (semantics 3.4).
    pub keeps: bool,
    /// Whether a call must stay although nobody reads its result.
    pub is_impure: bool,
}

/// The facts of a node's target, as the archive spells it.
///
/// `is_functional` says whether the program's dialect forbids operators that write.
#[must_use]
pub fn facts(target: &str, is_functional: bool) -> Facts {
    let Some(name) = target.strip_prefix("torch.ops.") else {
        // A Python function. The few that torch allows take no tensors, or are of the kind of vmap.
        return Facts { aliases: Arguments::All, writes: Arguments::NONE, keeps: false, is_impure: true };
    };
    for table in TABLES.iter() {
        if let Ok(at) = table.binary_search_by(|line| name_of(line).cmp(name)) {
            return parse(table[at]);
        }
    }
    let may_write = !is_functional && !is_higher_order(target);
    let writes = if may_write { Arguments::All } else { Arguments::NONE };
    Facts { aliases: Arguments::All, writes, keeps: false, is_impure: true }
}

/// Whether the target takes bodies or operators, and has no schema.
#[must_use]
pub fn is_higher_order(target: &str) -> bool {
    target.starts_with("torch.ops.higher_order.")
}

fn parse(line: &'static str) -> Facts {
    // What a control-flow operator does is up to its bodies.
    let is_impure = line.starts_with("higher_order.");
    let mut facts = Facts { aliases: Arguments::NONE, writes: Arguments::NONE, keeps: false, is_impure };
    for word in line.split(' ').skip(1) {
        match word.split_once('=') {
            Some(("aliases", "*")) => facts.aliases = Arguments::All,
            Some(("aliases", names)) => facts.aliases = Arguments::Named(names),
            Some(("writes", names)) => (facts.writes, facts.is_impure) = (Arguments::Named(names), true),
            _ if word == "keeps" => facts.keeps = true,
            _ => facts.is_impure = true,
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_found_by_their_name_in_an_archive() {
        let view = facts("torch.ops.aten.view.default", true);
        assert!(view.aliases.has("self") && !view.aliases.has("size") && view.writes.is_none() && !view.is_impure);
        assert!(facts("torch.ops.aten.add.Tensor", true).aliases.is_none());
        assert!(facts("torch.ops.aten.dropout.default", true).aliases.has("input"));
        assert!(facts("torch.ops.aten.add_.Tensor", false).writes.has("self"));
        assert!(facts("torch.ops.higher_order.cond", true).aliases.is_none());
    }

    #[test]
    fn an_unknown_operator_may_alias_and_in_a_training_program_write() {
        for target in ["torch.ops.mine.op.default", "torch.ops.higher_order.mine", "math.ceil", "", "#ns:op"] {
            let facts = facts(target, true);
            assert!(facts.aliases.has("x") && facts.writes.is_none() && facts.is_impure, "{target}");
        }
        assert!(facts("torch.ops.mine.op.default", false).writes.has("x"));
        assert!(facts("torch.ops.higher_order.mine", false).writes.is_none());
    }

    #[test]
    fn every_line_is_understood() {
        for line in TABLES.iter().flatten() {
            let mut words = line.split(' ').skip(1);
            assert!(
                words
                    .all(|w| ["impure", "keeps"].contains(&w) || w.starts_with("aliases=") || w.starts_with("writes=")),
                "{line}"
            );
        }
        for table in TABLES.iter() {
            assert!(table.windows(2).all(|w| name_of(w[0]) < name_of(w[1])));
        }
    }
}
