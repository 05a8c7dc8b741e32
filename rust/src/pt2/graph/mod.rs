//! The part of a graph's JSON that we understand: names, and who uses whom.
//!
//! Everything is borrowed from the text, so that each name knows its place in it: an edit replaces those places and
//! copies the rest, byte for byte. What we do not look at (metadata, stack traces, the values of plain arguments) is
//! skipped by the parser and never built. The recursion limit of `serde_json` bounds how deep control flow may nest.
//!
//! A name with an escape in it does not parse: torch makes names of ASCII letters, and one name must not have two
//! spellings.

mod parse;

use std::borrow::Cow;
use std::ops::Range;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::problem::InputKind;
use crate::pt2::fault::Fault;

/// The major version of the schema, the same since torch 2.5. Minor versions add what we skip or refuse.
const SCHEMA_MAJOR: u64 = 8;

/// torch's names are identifiers, and paths of modules. Reports repeat names, so a long one would want our memory.
const MAX_NAME: usize = 1024;

/// Refuses a name that nobody would give.
pub fn require_short(name: &str) -> Result<(), Error> {
    if name.len() <= MAX_NAME {
        Ok(())
    } else {
        Err(Fault::TooLarge.at(format_args!("a name of {} bytes", name.len())))
    }
}

/// An exported program.
#[derive(Debug, serde::Deserialize)]
pub struct Program<'a> {
    /// The graph and its signature.
    #[serde(borrow)]
    pub graph_module: GraphModule<'a>,
    /// Bounds of symbols.
    #[serde(borrow)]
    pub range_constraints: Pairs<'a>,
    schema_version: SchemaVersion,
    #[serde(default, borrow)]
    verifiers: Vec<Cow<'a, str>>,
}

#[derive(Debug, serde::Deserialize)]
struct SchemaVersion {
    major: u64,
}

/// The graph and its signature.
#[derive(Debug, serde::Deserialize)]
pub struct GraphModule<'a> {
    /// The top graph.
    #[serde(borrow)]
    pub graph: Graph<'a>,
    /// What its inputs and outputs are.
    #[serde(borrow)]
    pub signature: Signature<'a>,
    /// Interfaces of submodules that were preserved.
    #[serde(borrow)]
    pub module_call_graph: Vec<ModuleCall<'a>>,
}

/// A graph: the top one or a control-flow body. Bodies have names of their own.
#[derive(Debug, serde::Deserialize)]
pub struct Graph<'a> {
    /// Its parameters.
    #[serde(borrow)]
    pub inputs: Vec<Argument<'a>>,
    /// Its results.
    #[serde(borrow)]
    pub outputs: Vec<Spanned<'a, Argument<'a>>>,
    /// Its calls, in order.
    #[serde(borrow)]
    pub nodes: Vec<Node<'a>>,
    /// The type of each tensor.
    #[serde(borrow)]
    pub tensor_values: Pairs<'a>,
    /// Values that are no tensors, for their names.
    #[serde(default, borrow)]
    pub sym_int_values: Pairs<'a>,
    /// Likewise.
    #[serde(default, borrow)]
    pub sym_bool_values: Pairs<'a>,
    /// Likewise.
    #[serde(default, borrow)]
    pub sym_float_values: Pairs<'a>,
    /// Likewise.
    #[serde(default, borrow)]
    pub custom_obj_values: Pairs<'a>,
}

/// A call.
#[derive(Debug)]
pub struct Node<'a> {
    /// The operator.
    pub target: &'a str,
    /// Its arguments.
    pub inputs: Vec<NamedArgument<'a>>,
    /// Its results.
    pub outputs: Vec<Argument<'a>>,
    /// Provenance.
    pub metadata: Option<&'a RawValue>,
    /// The name of the call itself, which nothing refers to. Older archives have none.
    pub name: Option<&'a str>,
    /// Whether a higher-order operator returns a tensor rather than a tuple.
    pub returns_one: bool,
    /// The key that is written first, which tells where the node begins.
    first_key: &'a str,
}

/// An argument by its name in the operator's schema.
#[derive(Debug, serde::Deserialize)]
pub struct NamedArgument<'a> {
    /// The name; empty for the positional arguments of higher-order operators.
    #[serde(borrow)]
    pub name: &'a str,
    /// What is passed.
    #[serde(borrow)]
    pub arg: Argument<'a>,
}

/// What is passed or returned.
#[derive(Debug)]
pub enum Argument<'a> {
    /// A tensor.
    Tensor(&'a str),
    /// Tensors in a list, a list of lists or a dictionary.
    Tensors(Vec<&'a str>),
    /// A control-flow body.
    Graph(Box<Body<'a>>),
    /// A flag.
    Bool(bool),
    /// Nothing that a copy could be.
    Plain,
    /// A kind that did not exist when this was written.
    Unknown(&'a str),
}

impl<'a> Argument<'a> {
    /// The tensors of this graph that the argument names; those of a body belong to another graph.
    #[must_use]
    pub fn tensors(&self) -> &[&'a str] {
        match self {
            Argument::Tensor(name) => std::slice::from_ref(name),
            Argument::Tensors(names) => names,
            _ => &[],
        }
    }
}

/// A control-flow body.
#[derive(Debug, serde::Deserialize)]
pub struct Body<'a> {
    /// The submodule's name.
    #[serde(borrow)]
    pub name: &'a str,
    /// Its graph.
    #[serde(borrow)]
    pub graph: Graph<'a>,
}

/// The signature.
#[derive(Debug, serde::Deserialize)]
pub struct Signature<'a> {
    /// One for each input.
    #[serde(borrow)]
    pub input_specs: Vec<InputSpec<'a>>,
    /// One for each output.
    #[serde(borrow)]
    pub output_specs: Vec<Spanned<'a, OutputSpec<'a>>>,
}

/// What an input is.
#[derive(Debug)]
pub struct InputSpec<'a> {
    /// Its kind.
    pub kind: InputKind,
    /// The tensor, if it is one.
    pub name: Option<&'a str>,
    /// The name of the parameter or buffer.
    pub state: Option<Cow<'a, str>>,
}

/// What an output is.
#[derive(Debug)]
pub struct OutputSpec<'a> {
    /// Its kind.
    pub kind: OutputKind<'a>,
    /// The tensor, if it is one.
    pub name: Option<&'a str>,
}

/// The kinds of outputs.
#[derive(Debug, PartialEq, Eq)]
pub enum OutputKind<'a> {
    /// The new value of a buffer.
    Buffer(Cow<'a, str>),
    /// The new value of a parameter.
    Parameter(Cow<'a, str>),
    /// The new value of an input.
    UserInput(Cow<'a, str>),
    /// What the caller receives, losses and gradients included.
    User,
    /// Orders side effects.
    Token,
}

/// The interface of a submodule.
#[derive(Debug, serde::Deserialize)]
pub struct ModuleCall<'a> {
    /// Its tensors, if it was preserved.
    #[serde(borrow)]
    pub signature: Option<ModuleCallSignature<'a>>,
}

/// The tensors of a submodule's interface.
#[derive(Debug, serde::Deserialize)]
pub struct ModuleCallSignature<'a> {
    /// What it is given.
    #[serde(borrow)]
    pub inputs: Vec<Argument<'a>>,
    /// What it returns.
    #[serde(borrow)]
    pub outputs: Vec<Argument<'a>>,
}

/// The type of a tensor.
#[derive(Debug, serde::Deserialize)]
pub struct TensorMeta<'a> {
    /// The element type, as an enumerator of the schema.
    pub dtype: u64,
    /// The sizes.
    #[serde(borrow)]
    pub sizes: Vec<SymInt<'a>>,
    /// Where it lives.
    #[serde(borrow)]
    pub device: Device<'a>,
    /// The strides.
    #[serde(borrow)]
    pub strides: Vec<SymInt<'a>>,
    /// The memory format, as an enumerator of the schema.
    pub layout: u64,
}

/// A device.
#[derive(Debug, serde::Deserialize)]
pub struct Device<'a> {
    /// Its kind.
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    /// Which of its kind.
    #[serde(default)]
    pub index: Option<i64>,
}

/// A size or stride.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SymInt<'a> {
    /// A number.
    AsInt(i64),
    /// An expression, in the notation of sympy's `srepr`.
    #[serde(borrow)]
    AsExpr(SymExpr<'a>),
}

/// An expression.
#[derive(Debug, serde::Deserialize)]
pub struct SymExpr<'a> {
    /// In the notation of sympy's `srepr`.
    #[serde(borrow)]
    pub expr_str: Cow<'a, str>,
}

/// Bounds of a symbol; a bound that does not fit is none.
#[derive(Debug, serde::Deserialize)]
pub struct RangeConstraint<'a> {
    #[serde(borrow)]
    min_val: Option<&'a RawValue>,
    #[serde(borrow)]
    max_val: Option<&'a RawValue>,
}

impl RangeConstraint<'_> {
    /// The only value that the symbol can have, if it is one.
    #[must_use]
    pub fn only_value(&self) -> Option<i64> {
        let [min, max] = [self.min_val, self.max_val].map(|b| b.and_then(|b| b.get().parse::<i64>().ok()));
        min.filter(|_| min == max)
    }
}

impl<'a> Program<'a> {
    /// Parses a program.
    pub fn parse(text: &'a str) -> Result<Self, Error> {
        #[derive(serde::Deserialize)]
        struct Versioned {
            schema_version: SchemaVersion,
        }
        let parsed = serde_json::from_str::<Program<'a>>(text);
        // Another major version is another language, so that is said first.
        let major = match &parsed {
            Ok(program) => Some(program.schema_version.major),
            Err(_) => serde_json::from_str::<Versioned>(text).ok().map(|v| v.schema_version.major),
        };
        if let Some(other) = major.filter(|&m| m != SCHEMA_MAJOR) {
            return Err(Fault::SchemaVersion.at(format_args!("schema {other}")));
        }
        let program = parsed.map_err(|e| Fault::BadJson.at(e))?;
        program.graph_module.graph.check_arguments()?;
        program.graph_module.signature.output_specs.iter().try_for_each(|spec| match &spec.value.kind {
            OutputKind::Buffer(name) | OutputKind::Parameter(name) | OutputKind::UserInput(name) => require_short(name),
            OutputKind::User | OutputKind::Token => Ok(()),
        })?;
        Ok(program)
    }

    /// Whether torch's verifier has refused operators that write in place.
    #[must_use]
    pub fn is_functional(&self) -> bool {
        self.verifiers.first().is_some_and(|dialect| dialect != "TRAINING")
    }
}

impl<'a> Graph<'a> {
    /// The bodies that the nodes of this graph call, in order.
    pub fn bodies(&self) -> impl Iterator<Item = &Body<'a>> {
        self.nodes.iter().flat_map(|n| &n.inputs).filter_map(|input| match &input.arg {
            Argument::Graph(body) => Some(&**body),
            _ => None,
        })
    }

    /// A kind of argument that we do not know could name a tensor, so there is no going on.
    fn check_arguments(&self) -> Result<(), Error> {
        let own = self.outputs.iter().map(|o| &o.value).chain(&self.inputs);
        let of_nodes = self.nodes.iter().flat_map(|n| n.inputs.iter().map(|i| &i.arg).chain(&n.outputs));
        for argument in own.chain(of_nodes) {
            match argument {
                Argument::Unknown(kind) => return Err(Fault::UnknownArgument.at(kind)),
                Argument::Graph(body) => body.graph.check_arguments()?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl Node<'_> {
    /// The bytes of the text that are this node.
    #[must_use]
    pub fn range(&self, text: &str) -> Range<usize> {
        let key = position(text, self.first_key) - 1;
        let start = text[..key].trim_end().len() - 1; // the brace before the first key
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<IgnoredAny>();
        let _ = values.next(); // parsed before
        start..start + values.byte_offset()
    }
}

/// Where a part of the text stands in it.
#[must_use]
pub fn position(text: &str, part: &str) -> usize {
    let at = part.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
    debug_assert_eq!(text.get(at..at + part.len()), Some(part));
    at
}

/// A value together with its text.
#[derive(Debug)]
pub struct Spanned<'a, T> {
    /// The text.
    pub text: &'a str,
    /// The value.
    pub value: T,
}

/// A dictionary, in its order and with raw values.
#[derive(Debug, Default)]
pub struct Pairs<'a>(pub Vec<(&'a str, &'a RawValue)>);
