//! Where values live, and what they are after writes.
//!
//! A value lives in a cell of its own, in the cell of another value that it is or shows, or in one of these without
//! our knowing which. A cell holds a term. Whoever writes a value changes the cell that it lives in, and whatever else
//! lives there reads differently from then on. As long as nothing is written, nothing is read twice.

use crate::check::storage::{Storage, StorageId};
use crate::check::terms::{Arena, Term, Token};
use crate::check::types::Class;

/// Number of a value in its heap. A result that is several values is followed by them.
pub type ValueId = usize;

/// Where a value lives.
#[derive(Clone, Debug)]
pub enum Place {
    /// In a cell of its own.
    Cell,
    /// It is that value.
    Same(ValueId),
    /// It shows another value, as a call shows its argument.
    View {
        /// The value that is shown.
        parent: ValueId,
        /// The call.
        call: Term,
        /// The position of the argument in the call.
        hole: usize,
        /// Which result of the call it is, if the call has several.
        item: Option<u32>,
    },
    /// It shows one of several values, or has a cell of its own; a call decides.
    May {
        /// The values that it may show.
        parents: Vec<ValueId>,
        /// The call.
        call: Term,
        /// What is in its own cell.
        own: Term,
        /// What the parents were when `own` was set.
        seen: Vec<Term>,
    },
    /// It is so many values, which follow.
    Tuple(usize),
}

/// A value.
#[derive(Clone, Debug)]
pub struct Value {
    /// Where it lives.
    pub place: Place,
    /// Its type.
    pub class: Class,
    /// Whose storage that is.
    pub storage: StorageId,
    /// What it was when it was last read.
    pub term: Term,
    /// What identifies its quantizer, when it is quantized.
    pub quantizer: Option<Token>,
    read_at: u64,
}

/// The values of a run.
#[derive(Debug, Default)]
pub struct Heap {
    values: Vec<Value>,
    storages: Vec<Storage>,
    writes: u64,
}

impl Heap {
    /// Adds a value.
    pub fn push(
        &mut self,
        place: Place,
        class: Class,
        storage: StorageId,
        term: Term,
        quantizer: Option<Token>,
    ) -> ValueId {
        self.values.push(Value { place, class, storage, term, quantizer, read_at: self.writes });
        self.values.len() - 1
    }

    /// Adds a storage.
    pub fn new_storage(&mut self, storage: Storage) -> StorageId {
        self.storages.push(storage);
        self.storages.len() - 1
    }

    /// The storages.
    #[must_use]
    pub fn storages(&self) -> &[Storage] {
        &self.storages
    }

    /// A value as it was when last read.
    #[must_use]
    pub fn get(&self, value: ValueId) -> &Value {
        &self.values[value]
    }

    /// The values that a value consists of: nearly always itself.
    #[must_use]
    pub fn parts(&self, value: ValueId) -> std::ops::Range<ValueId> {
        match self.values[value].place {
            Place::Tuple(count) => value + 1..value + 1 + count,
            _ => value..value + 1,
        }
    }

    /// The value that a value is: itself, unless an operator returned its argument.
    #[must_use]
    pub fn identity(&self, mut value: ValueId) -> ValueId {
        while let Place::Same(other) = self.values[value].place {
            value = other;
        }
        value
    }

    /// What the value is now.
    pub fn read(&mut self, arena: &mut Arena, value: ValueId) -> Term {
        let mut stack = vec![value];
        while let Some(&top) = stack.last() {
            if self.is_current(top) {
                stack.pop();
            } else if let Some(stale) = self.parents(top).iter().copied().find(|&p| !self.is_current(p)) {
                stack.push(stale);
            } else {
                self.values[top].term = self.reread(arena, top);
                self.values[top].read_at = self.writes;
            }
        }
        self.values[value].term
    }

    fn is_current(&self, value: ValueId) -> bool {
        let value = &self.values[value];
        value.read_at == self.writes || matches!(value.place, Place::Cell | Place::Tuple(_))
    }

    fn parents(&self, value: ValueId) -> &[ValueId] {
        match &self.values[value].place {
            Place::Cell | Place::Tuple(_) => &[],
            Place::Same(parent) | Place::View { parent, .. } => std::slice::from_ref(parent),
            Place::May { parents, .. } => parents,
        }
    }

    /// The term of a value whose parents are current.
    fn reread(&self, arena: &mut Arena, value: ValueId) -> Term {
        let term = |&p: &ValueId| self.values[p].term;
        match &self.values[value].place {
            Place::Cell | Place::Tuple(_) => self.values[value].term,
            Place::Same(parent) => term(parent),
            &Place::View { parent, call, hole, item } => show(arena, call, hole, item, self.values[parent].term),
            Place::May { parents, own, seen, .. } if parents.iter().map(term).eq(seen.iter().copied()) => *own,
            Place::May { parents, call, own, .. } => {
                let mut tokens = vec![Token::Word("reread"), Token::Term(*call), Token::Term(*own)];
                tokens.extend(parents.iter().map(term).map(Token::Term));
                arena.make(&tokens)
            }
        }
    }

    /// Writes `term` into the value, and so into whatever it shows or is.
    pub fn write(&mut self, arena: &mut Arena, value: ValueId, term: Term) {
        let mut tasks = vec![Task::Write(value, term)];
        while let Some(task) = tasks.pop() {
            let (value, term) = match task {
                Task::Write(value, term) => (value, term),
                Task::WriteIf { call, which, value, term } => {
                    // Read now: another argument of the call may have been the same cell.
                    let old = Token::Term(self.read(arena, value));
                    let put = [Token::Word("put_if"), Token::Term(call), number(which), old, Token::Term(term)];
                    (value, arena.make(&put))
                }
                Task::Settle(value) => {
                    self.settle(arena, value);
                    continue;
                }
            };
            match self.values[value].place.clone() {
                Place::Cell | Place::Tuple(_) => self.values[value].term = term,
                Place::Same(parent) => tasks.push(Task::Write(parent, term)),
                Place::View { parent, call, hole, item } => {
                    let old = self.read(arena, parent);
                    let through = shape(arena, call, hole, item);
                    let put = [Token::Word("put"), Token::Term(through), Token::Term(old), Token::Term(term)];
                    tasks.push(Task::Write(parent, arena.make(&put)));
                }
                Place::May { parents, call, .. } => {
                    if let Place::May { own, .. } = &mut self.values[value].place {
                        *own = term;
                    }
                    // Taken up when the parents are written.
                    tasks.push(Task::Settle(value));
                    let parents = parents.into_iter().enumerate();
                    tasks.extend(parents.map(|(which, value)| Task::WriteIf { call, which, value, term }));
                }
            }
            self.writes += 1;
        }
    }

    /// From here on the value is what its own cell holds, until a parent changes.
    fn settle(&mut self, arena: &mut Arena, value: ValueId) {
        let parents = self.parents(value).to_vec();
        let now: Vec<Term> = parents.into_iter().map(|p| self.read(arena, p)).collect();
        if let Place::May { seen, .. } = &mut self.values[value].place {
            *seen = now;
        }
        self.writes += 1;
    }
}

/// What is left to do of a write.
enum Task {
    Write(ValueId, Term),
    /// If the call turns out to have shown this one of its arguments.
    WriteIf {
        call: Term,
        which: usize,
        value: ValueId,
        term: Term,
    },
    Settle(ValueId),
}

/// What a view shows of an argument that is `parent`. What was put in through the same view comes out.
pub fn show(arena: &mut Arena, call: Term, hole: usize, item: Option<u32>, parent: Term) -> Term {
    let through = shape(arena, call, hole, item);
    if let [Token::Word("put"), Token::Term(same), _, Token::Term(new)] = *arena.tokens(parent)
        && same == through
    {
        return new;
    }
    let call = with(arena, call, hole, Token::Term(parent));
    result(arena, call, item)
}

fn shape(arena: &mut Arena, call: Term, hole: usize, item: Option<u32>) -> Term {
    let open = with(arena, call, hole, Token::Hole);
    result(arena, open, item)
}

fn with(arena: &mut Arena, call: Term, at: usize, token: Token) -> Term {
    let mut tokens = arena.tokens(call).to_vec();
    tokens[at] = token;
    arena.make(&tokens)
}

/// The term of one result of a call, or of the only one.
pub fn result(arena: &mut Arena, call: Term, item: Option<u32>) -> Term {
    match item {
        None => call,
        Some(k) => arena.make(&[Token::Word("item"), Token::Term(call), Token::Number(k)]),
    }
}

/// A small number as a token.
#[must_use]
pub fn number(n: usize) -> Token {
    Token::Number(u32::try_from(n).unwrap_or(u32::MAX))
}
