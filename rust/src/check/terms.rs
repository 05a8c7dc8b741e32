//! Terms: what a value is, as an expression over the inputs with every operator uninterpreted.
//!
//! Equal expressions are one term, so that comparing two values is comparing two numbers, however large the programs.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::rc::Rc;

use crate::check::program::{Text, Texts};
use crate::check::types::Class;

/// An expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Term(u32);

/// A piece of an expression. The first one names the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Token {
    /// An operator that we made up: an input, a conversion, what a view shows.
    Word(&'static str),
    /// An operator, a constant, a keyword of the program.
    Text(Text),
    /// A subexpression.
    Term(Term),
    /// A type.
    Type(Class),
    /// A number.
    Number(u32),
    /// The argument that a view shows, left open.
    Hole,
}

/// All terms of the two programs.
#[derive(Debug, Default)]
pub struct Arena {
    list: Vec<Rc<[Token]>>,
    numbers: HashMap<Rc<[Token]>, Term>,
    types: HashSet<(Term, Class)>,
    is_typed: Vec<bool>,
    /// Whether types are still being learned.
    pub learns: bool,
}

impl Arena {
    /// The term of an expression.
    ///
    /// # Panics
    /// When there are more than 2^32 terms.
    pub fn make(&mut self, tokens: &[Token]) -> Term {
        if let Some(&known) = self.numbers.get(tokens) {
            return known;
        }
        let term = Term(u32::try_from(self.list.len()).expect("more than 2^32 terms"));
        let tokens: Rc<[Token]> = tokens.into();
        self.list.push(Rc::clone(&tokens));
        self.numbers.insert(tokens, term);
        self.is_typed.push(false);
        term
    }

    /// The expression itself.
    #[must_use]
    pub fn tokens(&self, term: Term) -> Rc<[Token]> {
        Rc::clone(&self.list[term.0 as usize])
    }

    /// Records the type of a term while types are learned; afterwards, whether the term may have this one.
    ///
    /// A term may have several: two calls that find the same number of elements name it by two symbols.
    pub fn is_typed(&mut self, term: Term, class: Class) -> bool {
        if self.learns {
            self.is_typed[term.0 as usize] = true;
            self.types.insert((term, class));
            return true;
        }
        !self.is_typed[term.0 as usize] || self.types.contains(&(term, class))
    }

    /// How two terms that ought to be equal differ: the smallest differing part of each.
    #[must_use]
    pub fn difference(&self, texts: &Texts, due: Term, found: Term) -> String {
        let (mut a, mut b) = (due, found);
        loop {
            let (left, right) = (&self.list[a.0 as usize], &self.list[b.0 as usize]);
            let differing: Vec<_> = left.iter().zip(right.iter()).filter(|(x, y)| x != y).collect();
            match differing[..] {
                [(&Token::Term(x), &Token::Term(y))] if left.len() == right.len() => (a, b) = (x, y),
                _ => return format!("{} instead of {}", self.show(texts, b, 3), self.show(texts, a, 3)),
            }
        }
    }

    /// The term as text, down to some depth.
    #[must_use]
    pub fn show(&self, texts: &Texts, term: Term, depth: usize) -> String {
        let mut out = String::new();
        for (i, token) in self.list[term.0 as usize].iter().enumerate() {
            if i > 12 {
                out.push_str(" ...");
                break;
            }
            if i > 0 {
                out.push(' ');
            }
            let _ = match *token {
                Token::Word(word) => write!(out, "{word}"),
                Token::Text(text) => write!(out, "{}", texts.get(text)),
                Token::Term(_) if depth == 0 => write!(out, "(...)"),
                Token::Term(inner) => write!(out, "({})", self.show(texts, inner, depth - 1)),
                Token::Type(class) => write!(out, "type{}", class.0),
                Token::Number(number) => write!(out, "{number}"),
                Token::Hole => write!(out, "_"),
            };
        }
        out
    }
}
