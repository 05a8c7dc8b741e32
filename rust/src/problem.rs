//! What is decided about: the mutations of one graph and everything that bears on its copies.
//!
//! A problem is a small extract of a program. It lists the copies, the values that they read, and whatever shares
//! storage with an output of the graph; the arithmetic in between is invisible, because it reads values and no value
//! changes when a redundant copy goes. Control-flow bodies are problems of their own, without mutations.
//!
//! *May alias* is the only alias relation: a value of [`Def::Alias`] may share storage with any of the values named,
//! and a front end that does not know an operator names all of its tensor arguments. Distinct placeholders do not
//! share storage (semantics 4.9).

use std::collections::HashMap;

use crate::error::Error;
use crate::faults::{Fault, is_seeded};
use crate::ids::{LayoutId, SymbolId, ValueId};
use crate::layout::{Dim, Equalities, Format, Layout};

/// What a placeholder is an input for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A registered buffer.
    Buffer,
    /// An argument of the caller's.
    UserInput,
    /// A parameter, a constant or anything else.
    Other,
}

impl InputKind {
    /// Every kind.
    pub const ALL: [InputKind; 3] = [InputKind::Buffer, InputKind::UserInput, InputKind::Other];

    /// The kind as the textual form spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            InputKind::Buffer => "buffer",
            InputKind::UserInput => "user_input",
            InputKind::Other => "other",
        }
    }
}

/// How a value comes into being.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Def {
    /// An input of the graph, with storage of its own.
    Placeholder,
    /// The result of an operator that returns new storage.
    Fresh,
    /// The result of an operator that may share storage with these values.
    Alias(Vec<ValueId>),
    /// `aten.copy(destination, source)`: new storage with the values of `source`.
    Copy {
        /// Read for its layout only.
        destination: ValueId,
        /// Read for its values.
        source: ValueId,
        /// Whether the copy may return before its values have arrived (`non_blocking`).
        non_blocking: bool,
    },
}

/// A value of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// For messages and the textual form; front ends may leave it empty.
    pub name: String,
    /// Its type.
    pub layout: LayoutId,
    /// Its origin.
    pub def: Def,
    /// The argument whose representation (quantizer) the value keeps, for operators such as `index_put` that write
    /// into a copy of their first argument (semantics 3.4).
    pub keeps_representation_of: Option<ValueId>,
}

/// One output of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The value that a target receives when the graph is left.
    Mutation {
        /// The placeholder that is mutated.
        target: ValueId,
        /// What it becomes.
        value: ValueId,
        /// Whether the position among the mutation outputs is observable: a mutated user input is an output of an
        /// `ExecuTorch` method, in order; a buffer or parameter is not.
        pinned: bool,
    },
    /// A value that the caller receives.
    User(ValueId),
    /// Something that is no tensor: a token, a number, nothing.
    Other,
}

/// The mutations and copies of one graph. Build it, then call [`Problem::validate`] once; everything else trusts it.
#[derive(Clone, Debug, Default)]
pub struct Problem {
    /// The distinct symbolic expressions, as text for messages.
    pub symbols: Vec<String>,
    /// What has been proved about them.
    pub equalities: Equalities,
    /// The distinct layouts.
    pub layouts: Vec<Layout>,
    /// Values; operands before the values that use them.
    pub values: Vec<Value>,
    /// What the placeholders are inputs for; one without an entry may be anything. For look-up only.
    pub kinds: HashMap<ValueId, InputKind>,
    /// Mutation outputs whose target is a user input with the name of a buffer or parameter, or the other way round.
    pub namesakes: Vec<usize>,
    /// Mutation values that operators of the graph read as well.
    pub read: Vec<ValueId>,
    /// Outputs of the graph in order.
    pub outputs: Vec<Output>,
    /// Groups of values that one operator demands to be free of shared storage: operands of a control-flow operator.
    pub operand_groups: Vec<Vec<ValueId>>,
    /// Values whose storage an operator of the graph writes in place: the graph is not purely functional there.
    pub written: Vec<ValueId>,
    /// Whether in-place writes are hidden where the front end cannot attribute them (inside a control-flow body).
    pub opaque_writes: bool,
    /// Whether this graph is a control-flow body, whose outputs may not share storage with its inputs (semantics 4.6).
    pub is_body: bool,
}

impl Problem {
    /// The value's layout.
    #[must_use]
    pub fn layout(&self, value: ValueId) -> &Layout {
        &self.layouts[self.values[value.index()].layout.index()]
    }

    /// The value's definition.
    #[must_use]
    pub fn def(&self, value: ValueId) -> &Def {
        &self.values[value.index()].def
    }

    /// Whether two placeholders may be of one kind, so that a consumer may take one for the other.
    #[must_use]
    pub fn may_be_of_one_kind(&self, a: ValueId, b: ValueId) -> bool {
        match (self.kinds.get(&a), self.kinds.get(&b)) {
            _ if is_seeded(Fault::NoKinds) => false,
            (Some(a), Some(b)) => a == b,
            _ => true,
        }
    }

    /// The copies, in the order of the values.
    pub fn copies(&self) -> impl Iterator<Item = ValueId> + '_ {
        (0..self.values.len()).map(ValueId::new).filter(|&v| matches!(self.def(v), Def::Copy { .. }))
    }

    /// Checks what every other function takes for granted.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |message: String| Err(Error::InvalidProblem(message));
        if u32::try_from(self.values.len()).is_err() || u32::try_from(self.layouts.len()).is_err() {
            return refuse("the graph has more than 2^32 values".into());
        }
        for (i, layout) in self.layouts.iter().enumerate() {
            if layout.sizes.len() != layout.strides.len() {
                return refuse(format!(
                    "layout {i}: {} sizes and {} strides",
                    layout.sizes.len(),
                    layout.strides.len()
                ));
            }
            let known = |d: &Dim| !matches!(d, Dim::Symbol(SymbolId(s)) if *s as usize >= self.symbols.len());
            if !layout.sizes.iter().chain(&layout.strides).all(known) {
                return refuse(format!("layout {i}: an unknown symbol"));
            }
            if layout.format == Format::Unknown && !layout.sizes.is_empty() {
                return refuse(format!("layout {i}: sizes of an unknown tensor"));
            }
        }
        for (i, value) in self.values.iter().enumerate() {
            let name = || if value.name.is_empty() { format!("value {i}") } else { value.name.clone() };
            if value.layout.index() >= self.layouts.len() {
                return refuse(format!("{}: an unknown layout", name()));
            }
            let operands: &[ValueId] = match &value.def {
                Def::Placeholder | Def::Fresh => &[],
                Def::Alias(of) => of,
                Def::Copy { destination, source, .. } => &[*destination, *source],
            };
            if operands.iter().chain(&value.keeps_representation_of).any(|o| o.index() >= i) {
                return refuse(format!("{}: an operand that does not come before it", name()));
            }
        }
        self.validate_outputs()
    }

    fn validate_outputs(&self) -> Result<(), Error> {
        let refuse = |message: String| Err(Error::InvalidProblem(message));
        let known = |v: &ValueId| v.index() < self.values.len();
        let mut is_target = vec![false; self.values.len()];
        let mut seen_user = false;
        for (i, output) in self.outputs.iter().enumerate() {
            match output {
                Output::Mutation { target, value, .. } => {
                    if !known(target) || !known(value) {
                        return refuse(format!("output {i}: an unknown value"));
                    }
                    if *self.def(*target) != Def::Placeholder {
                        return refuse(format!("output {i}: its target is no placeholder"));
                    }
                    if std::mem::replace(&mut is_target[target.index()], true) {
                        return refuse(format!("output {i}: its target is mutated twice"));
                    }
                    if seen_user {
                        return refuse(format!("output {i}: a mutation after a user output"));
                    }
                    if self.is_body {
                        return refuse(format!("output {i}: a mutation in a control-flow body"));
                    }
                }
                Output::User(value) => {
                    if !known(value) {
                        return refuse(format!("output {i}: an unknown value"));
                    }
                    seen_user = true;
                }
                Output::Other => {}
            }
        }
        let mentioned = self.operand_groups.iter().flatten().chain(&self.written).chain(&self.read);
        if !mentioned.chain(self.kinds.keys()).all(known) {
            return refuse("an unknown value in an operand group, a write or a kind".into());
        }
        Ok(())
    }
}
