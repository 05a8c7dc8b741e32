//! Symbolic sizes of archives, which hold them in the notation of sympy's `srepr`.
//!
//! A size is written as a sum of products, each a number times powers of *atoms*: symbols, and whatever else there is,
//! `FloorDiv` for one. Two sizes with the same sum are equal. A symbol that can have one value only is that value.

use std::collections::BTreeMap;

/// Deeper nesting, and longer sums than this, are atoms.
const LIMIT: usize = 60;

/// Products of atoms, each with the number that it is multiplied by; none of them zero.
type Sum = BTreeMap<Vec<String>, i128>;

/// A size in its one form, as text.
#[must_use]
pub fn normal(text: &str, values: &BTreeMap<String, i64>) -> String {
    let mut reader = Reader { rest: text, values };
    match reader.sum(0) {
        Some(sum) if reader.rest.trim().is_empty() => show(&sum),
        _ => format!("?{text}"),
    }
}

fn show(sum: &Sum) -> String {
    let terms: Vec<String> = sum.iter().map(|(atoms, n)| format!("{n}*{}", atoms.join("*"))).collect();
    match (sum.len(), sum.get(&Vec::new())) {
        (0, _) => "0".into(),
        (1, Some(n)) => n.to_string(),
        _ => terms.join("+"),
    }
}

fn number(n: i128) -> Sum {
    Sum::from_iter((n != 0).then(|| (Vec::new(), n)))
}

fn atom(text: String) -> Sum {
    Sum::from([(vec![text], 1)])
}

fn plus(mut a: Sum, b: Sum) -> Option<Sum> {
    for (atoms, n) in b {
        let total = a.get(&atoms).copied().unwrap_or(0).checked_add(n)?;
        if total == 0 {
            a.remove(&atoms);
        } else {
            a.insert(atoms, total);
        }
    }
    (a.len() <= LIMIT).then_some(a)
}

fn times(a: &Sum, b: &Sum) -> Option<Sum> {
    let mut product = Sum::new();
    for (left, m) in a {
        for (right, n) in b {
            let mut atoms = [left.as_slice(), right.as_slice()].concat();
            atoms.sort_unstable();
            product = plus(product, Sum::from([(atoms, m.checked_mul(*n)?)]))?;
        }
    }
    Some(product)
}

struct Reader<'t> {
    rest: &'t str,
    values: &'t BTreeMap<String, i64>,
}

impl Reader<'_> {
    fn skip(&mut self, what: char) -> bool {
        self.rest = self.rest.trim_start();
        let found = self.rest.strip_prefix(what);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    fn word(&mut self) -> &str {
        self.rest = self.rest.trim_start();
        let is_part = |c: char| c.is_alphanumeric() || "_.-".contains(c);
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn sum(&mut self, depth: usize) -> Option<Sum> {
        if depth > LIMIT {
            return None;
        }
        let function = self.word().to_owned();
        if function.is_empty() {
            return None;
        }
        if !self.skip('(') {
            return Some(function.parse().map_or_else(|_| atom(function), number));
        }
        match function.as_str() {
            "Symbol" => {
                let name = self.quoted()?;
                self.rest = self.rest.split_once(')')?.1;
                Some(self.values.get(&name).map_or_else(|| atom(name), |&n| number(n.into())))
            }
            "Integer" => {
                let n = self.word().parse().ok()?;
                self.skip(')').then(|| number(n))
            }
            _ => {
                let arguments = self.arguments(depth)?;
                apply(&function, arguments)
            }
        }
    }

    fn quoted(&mut self) -> Option<String> {
        self.rest = self.rest.trim_start().strip_prefix(['\'', '"'])?;
        let (name, rest) = self.rest.split_once(['\'', '"'])?;
        self.rest = rest;
        Some(name.to_owned())
    }

    fn arguments(&mut self, depth: usize) -> Option<Vec<Sum>> {
        let mut found = Vec::new();
        while !self.skip(')') {
            found.push(self.sum(depth + 1)?);
            self.skip(',');
        }
        Some(found)
    }
}

fn apply(function: &str, arguments: Vec<Sum>) -> Option<Sum> {
    match (function, &arguments[..]) {
        ("Add", _) => arguments.into_iter().try_fold(Sum::new(), plus),
        ("Mul", _) => arguments.iter().try_fold(number(1), |product, factor| times(&product, factor)),
        ("Pow", [base, power]) if power.len() == 1 && (1..=8).contains(power.get(&Vec::new())?) => {
            (0..*power.get(&Vec::new())?).try_fold(number(1), |product, _| times(&product, base))
        }
        _ => {
            let arguments: Vec<String> = arguments.iter().map(show).collect();
            Some(atom(format!("{function}({})", arguments.join(","))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: &str, b: &str) -> bool {
        let values = BTreeMap::from([("one".to_owned(), 1)]);
        normal(a, &values) == normal(b, &values)
    }

    #[test]
    fn sums_have_one_form() {
        let s = "Symbol('s0', positive=True, integer=True)";
        assert!(same(&format!("Add({s}, {s})"), &format!("Mul(Integer(2), {s})")));
        assert!(same(&format!("Pow({s}, Integer(2))"), &format!("Mul({s}, {s})")));
        assert!(same(&format!("Add({s}, Mul(Integer(-1), {s}))"), "Integer(0)"));
        assert!(same("Symbol('one')", "Integer(1)"));
        assert!(same(
            &format!("FloorDiv(Add({s}, {s}), Integer(2))"),
            &format!("FloorDiv(Mul({s}, Integer(2)), Integer(2))")
        ));
        assert!(!same(s, "Symbol('s1')"));
        assert!(!same(&format!("FloorDiv({s}, Integer(2))"), &format!("FloorDiv({s}, Integer(3))")));
        assert!(!same("Mod(Symbol('a'), Symbol('b'))", "Mod(Symbol('b'), Symbol('a'))"));
    }

    #[test]
    fn what_is_not_understood_is_equal_to_itself_only() {
        for text in ["", "(", "Add(", "Symbol('a", "Pow(Symbol('a'), Integer(99))", "x y", "Rational(1, 2)"] {
            assert!(same(text, text));
            assert!(!same(text, "Integer(1)"), "{text}");
        }
        let deep = "Add(".repeat(1000) + "Integer(1)" + &")".repeat(1000);
        assert!(!same(&deep, "Integer(1)"));
        let wide = format!("Pow(Add({}), Integer(8))", ["Symbol('a')", "Symbol('b')", "Symbol('c')"].join(", "));
        assert!(same(&wide, &wide));
    }
}
