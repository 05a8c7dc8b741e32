//! What the checker is told: a program before and after, and who carries out its mutations.
//!
//! Nothing here knows what the planner knows. Every node of a graph is present, in order, with all of its arguments;
//! operators are names, constants are text. A call also says what its results may share storage with and what it
//! writes in place, because those are properties of the operator and not of the program. Names, operators, symbols and
//! constants are interned together, so that the two programs can be compared by number.

use std::collections::HashMap;

/// An interned piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(pub u32);

/// The interned texts of a case.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    list: Vec<String>,
    numbers: HashMap<String, Text>,
}

impl Texts {
    /// The number of `text`.
    ///
    /// # Panics
    /// When there are more than 2^32 texts.
    pub fn intern(&mut self, text: &str) -> Text {
        if let Some(&known) = self.numbers.get(text) {
            return known;
        }
        let number = Text(u32::try_from(self.list.len()).expect("more than 2^32 texts"));
        self.list.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// The text itself.
    #[must_use]
    pub fn get(&self, text: Text) -> &str {
        &self.list[text.0 as usize]
    }
}

/// A size or a stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// A number.
    Number(i64),
    /// A symbolic expression.
    Symbol(Text),
}

/// What a value looks like.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A tensor with strides.
    Tensor(Tensor),
    /// Anything else: a number, a sparse tensor, something unknown. No two of these are proved equal.
    Other(Text),
}

/// The type of a strided tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// Element type.
    pub dtype: Text,
    /// Device.
    pub device: Text,
    /// Sizes, outermost first.
    pub sizes: Vec<Dim>,
    /// Strides, as many as there are sizes.
    pub strides: Vec<Dim>,
    /// The lazy conjugation bit.
    pub conj: bool,
    /// The lazy negation bit.
    pub neg: bool,
    /// For quantized element types what identifies the quantizer; the empty text where that is unknown.
    pub quantizer: Option<Text>,
}

/// One argument of a call, or one piece of a nested argument.
#[derive(Clone, Debug)]
pub enum Arg {
    /// The value of an earlier node.
    Value(usize),
    /// A constant, a keyword, a bracket.
    Text(Text),
    /// The body of a control-flow operator.
    Body(Box<Graph>),
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// An input of the graph: its kind (`buffer`, `user_input`, ...) and target.
    Input(Text, Text),
    /// `copy(d, s)`: new storage that looks like `d` and has the values of `s`. The only operator with a meaning.
    Copy,
    /// One result of a call that has several.
    Item(u32),
    /// Any other operator.
    Call(Text),
}

/// How a result relates to the storage of an argument.
#[derive(Clone, Debug)]
pub enum Share {
    /// It is that very value.
    Same(usize),
    /// It certainly shows part or all of that value's storage.
    View(usize),
    /// It may share storage with some of these values.
    May(Vec<usize>),
}

/// What a call writes in place.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// The value that is written.
    pub value: usize,
    /// The result whose value it takes; `None` where the operator does not say.
    pub result: Option<u32>,
}

/// The types of a node's results.
#[derive(Clone, Debug)]
pub enum Results {
    /// One value.
    One(usize),
    /// Several values, to be taken apart by [`Op::Item`].
    Many(Vec<usize>),
}

/// One node; numbers of values are positions of nodes, numbers of types positions in [`Case::types`].
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: Text,
    /// What it is.
    pub op: Op,
    /// What it gives.
    pub results: Results,
    /// What it takes.
    pub args: Vec<Arg>,
    /// For each result that shares storage with an argument: which, and how.
    pub shares: Vec<(u32, Share)>,
    /// What it writes in place.
    pub writes: Vec<Write>,
    /// The value whose quantizer its result has.
    pub keeps: Option<usize>,
    /// Whether its effect or its randomness depends on when it runs.
    pub impure: bool,
}

/// What an output is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It goes to the caller.
    User,
    /// It becomes the new value of the input with this kind and target.
    Mutation(Text, Text),
    /// It is a token or the like.
    Other,
}

/// One output of a graph.
#[derive(Clone, Debug)]
pub struct Output {
    /// What it is for.
    pub role: Role,
    /// A node, or a constant.
    pub value: Arg,
    /// The name that the signature gives it, where it gives one.
    pub named: Option<Text>,
}

/// A graph: a program, or a body of control flow.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Its nodes in order, inputs among them.
    pub nodes: Vec<Node>,
    /// Its outputs in order.
    pub outputs: Vec<Output>,
}

/// One step of a write-back that knows temporaries; numbers are those of outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The value goes to a temporary, which stands for it from here on.
    Save(usize),
    /// The value, or its temporary, is written to the target.
    Write(usize),
}

/// Who carries out the mutations when the graph is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consumer {
    /// `ExportedProgram.module()`: one `copy_` after another, in the order of the outputs. A user output that is the
    /// value of a mutation is replaced by the target.
    Torch,
    /// `to_executorch()`: the same, except that a value which is some placeholder of the right kind is taken for
    /// written, and that parameters are not written.
    ExecuTorch,
    /// A write-back that takes these steps.
    Steps(Vec<Step>),
    /// The graph itself, in place: what an input holds in the end is its new value.
    Nobody,
}

/// Everything there is to check.
#[derive(Clone, Debug)]
pub struct Case {
    /// Names, operators, constants, symbols.
    pub texts: Texts,
    /// Types of both programs.
    pub types: Vec<Type>,
    /// Dimensions that were proved equal.
    pub equal: Vec<(Dim, Dim)>,
    /// The program as it was.
    pub before: Graph,
    /// The program as it is.
    pub after: Graph,
    /// Who runs the second one.
    pub consumer: Consumer,
}
