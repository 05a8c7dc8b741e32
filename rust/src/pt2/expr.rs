//! Symbolic sizes: expressions in the notation of sympy's `srepr`, brought to one form.
//!
//! Two sizes are equal when they are the same polynomial, with integer coefficients, over the same *atoms*: symbols,
//! and applications of functions whose meaning we leave alone, `FloorDiv` for one. A symbol that can have a single
//! value is that value. Equal forms prove equality; different forms prove nothing, so a copy between them stays.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Expressions nest by a few levels; a deeper one is an atom as a whole.
const MAX_DEPTH: u32 = 50;
/// Products of sums grow quickly; a larger one is an atom as a whole.
const MAX_TERMS: usize = 64;
/// A longer text is an atom as a whole.
const MAX_LENGTH: usize = 4096;

/// A product of powers: atoms by their text, in order.
type Monomial = BTreeMap<String, u32>;

/// A sum of monomials with their coefficients, none of them zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Polynomial(BTreeMap<Monomial, i128>);

impl Polynomial {
    /// A number.
    #[must_use]
    pub fn integer(n: i128) -> Self {
        let mut sum = Polynomial::default();
        if n != 0 {
            sum.0.insert(Monomial::new(), n);
        }
        sum
    }

    fn atom(text: String) -> Self {
        Polynomial(BTreeMap::from([(Monomial::from([(text, 1)]), 1)]))
    }

    /// Reads an expression. `values` are the symbols that can have a single value.
    #[must_use]
    pub fn parse(text: &str, values: &HashMap<&str, i64>) -> Self {
        let mut parser = Parser { rest: text, values };
        let parsed = if text.len() > MAX_LENGTH { None } else { parser.expression(MAX_DEPTH) };
        match parsed {
            Some(sum) if parser.rest.trim_start().is_empty() => sum,
            // The marks keep it apart from the text of anything that does parse.
            _ => Polynomial::atom(format!("`{text}`")),
        }
    }

    /// The number that this is, if it is one.
    #[must_use]
    pub fn as_integer(&self) -> Option<i128> {
        match self.0.first_key_value() {
            None => Some(0),
            Some((monomial, &n)) if self.0.len() == 1 && monomial.is_empty() => Some(n),
            _ => None,
        }
    }

    /// The sum, unless it is too large.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Option<Self> {
        for (monomial, n) in &other.0 {
            let sum = self.0.entry(monomial.clone()).or_insert(0);
            *sum = sum.checked_add(*n)?;
            if *sum == 0 {
                self.0.remove(monomial);
            }
        }
        (self.0.len() <= MAX_TERMS).then_some(self)
    }

    /// The product, unless it is too large.
    #[must_use]
    pub fn times(&self, other: &Self) -> Option<Self> {
        let mut product = Polynomial::default();
        for (a, n) in &self.0 {
            for (b, m) in &other.0 {
                let mut monomial = a.clone();
                for (atom, power) in b {
                    let sum = monomial.entry(atom.clone()).or_insert(0);
                    *sum = sum.checked_add(*power)?;
                }
                product = product.plus(&Polynomial(BTreeMap::from([(monomial, n.checked_mul(*m)?)])))?;
            }
        }
        Some(product)
    }

    fn power(&self, exponent: i128) -> Option<Self> {
        let exponent = u8::try_from(exponent).ok().filter(|&e| e <= 16)?;
        (0..exponent).try_fold(Polynomial::integer(1), |product, _| product.times(self))
    }

    /// As people write it; equal expressions have equal texts.
    #[must_use]
    pub fn text(&self) -> String {
        let mut terms: Vec<_> = self.0.iter().collect();
        let degree = |m: &Monomial| m.values().map(|&p| u64::from(p)).sum::<u64>();
        terms.sort_by_key(|(m, _)| std::cmp::Reverse(degree(m)));
        let mut text = String::new();
        for (monomial, &n) in terms {
            text.push_str(match (text.is_empty(), n < 0) {
                (true, false) => "",
                (true, true) => "-",
                (false, false) => " + ",
                (false, true) => " - ",
            });
            let factors = monomial.iter().map(|(atom, power)| match power {
                1 => atom.clone(),
                _ => format!("{atom}**{power}"),
            });
            let n = n.unsigned_abs();
            let number = (n != 1 || monomial.is_empty()).then(|| n.to_string());
            let _ = write!(text, "{}", number.into_iter().chain(factors).collect::<Vec<_>>().join("*"));
        }
        if text.is_empty() { "0".into() } else { text }
    }
}

struct Parser<'t, 'v> {
    rest: &'t str,
    values: &'v HashMap<&'v str, i64>,
}

impl<'t> Parser<'t, '_> {
    fn expression(&mut self, depth: u32) -> Option<Polynomial> {
        let depth = depth.checked_sub(1)?;
        let start = self.rest;
        let head = self.word();
        if !self.eat('(') {
            return self.number(start);
        }
        match head {
            "Symbol" => self.symbol(),
            "Integer" => {
                let digits = self.word();
                self.eat(')').then(|| digits.parse().ok().map(Polynomial::integer))?
            }
            "Add" => self.operands(depth)?.iter().try_fold(Polynomial::default(), Polynomial::plus),
            "Mul" => self.operands(depth)?.iter().try_fold(Polynomial::integer(1), |a, b| a.times(b)),
            "Pow" => {
                let operands = self.operands(depth)?;
                let [base, exponent] = operands.as_slice() else { return None };
                match exponent.as_integer().and_then(|e| base.power(e)) {
                    Some(power) => Some(power),
                    None => application(head, &operands),
                }
            }
            "" => None,
            _ => application(head, &self.operands(depth)?),
        }
    }

    /// The rest of `Symbol('s0', positive=True, integer=True)`. torch has one symbol of each name.
    fn symbol(&mut self) -> Option<Polynomial> {
        let quote = self.rest.chars().next().filter(|c| "'\"".contains(*c))?;
        let (name, rest) = self.rest[1..].split_once(quote)?;
        let (assumptions, rest) = rest.split_once(')')?;
        let is_identifier = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_identifier || assumptions.contains(['(', '\'', '"']) {
            return None;
        }
        self.rest = rest;
        Some(match self.values.get(name) {
            Some(&value) => Polynomial::integer(value.into()),
            None => Polynomial::atom(name.into()),
        })
    }

    fn operands(&mut self, depth: u32) -> Option<Vec<Polynomial>> {
        let mut operands = Vec::new();
        while !self.eat(')') {
            if !operands.is_empty() && !self.eat(',') {
                return None;
            }
            operands.push(self.expression(depth)?);
        }
        Some(operands)
    }

    /// A bare number, as in `Rational(1, 2)`.
    fn number(&mut self, start: &'t str) -> Option<Polynomial> {
        let digits = start.trim_start();
        let len = digits.len() - self.rest.len();
        digits[..len].trim_end().parse().ok().map(Polynomial::integer)
    }

    fn word(&mut self) -> &'t str {
        let rest = self.rest.trim_start();
        let is_end = |c: char| !(c.is_ascii_alphanumeric() || "_.-".contains(c));
        let (word, rest) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
        self.rest = rest;
        word
    }

    fn eat(&mut self, wanted: char) -> bool {
        match self.rest.trim_start().strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}

/// A function that we know nothing of: equal when its operands are.
fn application(head: &str, operands: &[Polynomial]) -> Option<Polynomial> {
    let operands: Vec<_> = operands.iter().map(Polynomial::text).collect();
    let text = format!("{head}({})", operands.join(", "));
    (text.len() <= MAX_LENGTH).then(|| Polynomial::atom(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(srepr: &str) -> String {
        Polynomial::parse(srepr, &HashMap::from([("s9", 4)])).text()
    }

    const S0: &str = "Symbol('s0', positive=True, integer=True)";

    #[test]
    fn equal_polynomials_have_one_form() {
        let square = format!("Pow(Add({S0}, Integer(1)), Integer(2))");
        let expanded = format!("Add(Mul(Integer(2), {S0}), Mul({S0}, {S0}), Integer(1))");
        assert_eq!(text(&square), "s0**2 + 2*s0 + 1");
        assert_eq!(text(&square), text(&expanded));
        assert_eq!(text(&format!("Add({S0}, Mul(Integer(-1), {S0}))")), "0");
        assert_eq!(text("Mul(Integer(3), Symbol('s9'))"), "12");
        assert_eq!(text("Integer(-7)"), "-7");
    }

    #[test]
    fn functions_are_atoms() {
        let half = |x: &str| format!("FloorDiv({x}, Integer(2))");
        assert_eq!(text(&half(S0)), "FloorDiv(s0, 2)");
        assert_eq!(text(&format!("Mul({}, Integer(2))", half(S0))), "2*FloorDiv(s0, 2)");
        assert_ne!(text(&half(S0)), text(&half("Symbol('s1', integer=True)")));
        assert_eq!(text(&format!("Mul(Rational(1, 2), {S0})")), "Rational(1, 2)*s0");
        assert_eq!(text(&format!("Pow({S0}, Integer(-1))")), "Pow(s0, -1)");
    }

    #[test]
    fn what_does_not_parse_equals_itself_only() {
        for odd in ["", "(", "Symbol(s0)", "Add(", "Integer(x)", "lambda: 0", "Symbol('s0') + 1", "Add(Integer(1) 2)"] {
            assert_eq!(text(odd), format!("`{odd}`"));
        }
        let raw = |x: &str| assert_eq!(text(x), format!("`{x}`"));
        raw(&("Add(".repeat(1000) + &")".repeat(1000)));
        raw("Symbol('2*s1')");
        raw(&format!("Add({}Integer(1))", "Integer(1), ".repeat(1000)));
        let wide = (0..20).fold("Integer(1)".into(), |product, i| {
            format!("Mul({product}, Add(Symbol('a{i}', integer=True), Symbol('b{i}', integer=True)))")
        });
        raw(&wide);
        raw(&format!("Integer({})", "9".repeat(60)));
        // Each level would write the text of the one below it seven times.
        raw(&(0..20).fold(S0.into(), |x, _| format!("Pow(Add(F({x}), Integer(1)), Integer(6))")));
    }
}
