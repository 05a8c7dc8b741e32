//! How the schema's unions and dictionaries are read.
//!
//! A union is an object of one key, which says what the value is. `serde` can derive that, but not for kinds that are
//! skipped or not known, and a node has to remember where it begins.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::problem::InputKind;

use super::{Argument, InputSpec, Node, OutputKind, OutputSpec, Pairs, Spanned};

impl<'de: 'a, 'a, T: Deserialize<'a>> Deserialize<'de> for Spanned<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&'a RawValue>::deserialize(deserializer)?.get();
        let value = serde_json::from_str(text).map_err(D::Error::custom)?;
        Ok(Spanned { text, value })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor(PhantomData))
    }
}

struct PairsVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for PairsVisitor<'a> {
    type Value = Pairs<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a dictionary")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'a>, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry::<&'a str, &'a RawValue>()? {
            pairs.push(pair);
        }
        Ok(Pairs(pairs))
    }
}

/// A visitor of one of the schema's unions: an object of one key, which says what the value is.
struct UnionVisitor<T>(PhantomData<T>);

/// A union of the schema.
trait Union<'de>: Sized {
    fn variant<A: MapAccess<'de>>(key: &'de str, map: &mut A) -> Result<Self, A::Error>;
}

impl<'de, T: Union<'de>> Visitor<'de> for UnionVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of one key")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let key = map.next_key::<&'de str>()?.ok_or_else(|| A::Error::custom("an empty union"))?;
        let value = T::variant(key, &mut map)?;
        match map.next_key::<IgnoredAny>()? {
            None => Ok(value),
            Some(_) => Err(A::Error::custom("a union of two kinds")),
        }
    }
}

macro_rules! deserialize_unions {
    ($($name:ident)*) => {$(
        impl<'de: 'a, 'a> Deserialize<'de> for $name<'a> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_map(UnionVisitor::<$name<'a>>(PhantomData))
            }
        }
    )*};
}

deserialize_unions! { Argument OptionalTensor InputSpec OutputSpec }

/// Kinds of arguments that name no tensor.
const PLAIN: &[&str] = &[
    "as_none",
    "as_int",
    "as_ints",
    "as_float",
    "as_floats",
    "as_string",
    "as_strings",
    "as_sym_int",
    "as_sym_ints",
    "as_scalar_type",
    "as_memory_format",
    "as_layout",
    "as_device",
    "as_bools",
    "as_sym_bool",
    "as_sym_bools",
    "as_custom_obj",
    "as_operator",
    "as_sym_float",
    "as_sym_floats",
    "as_complex",
    "as_int_lists",
    "as_float_lists",
];

#[derive(serde::Deserialize)]
struct TensorArgument<'a> {
    #[serde(borrow)]
    name: &'a str,
}

struct OptionalTensor<'a>(Option<&'a str>);

impl<'de: 'a, 'a> Union<'de> for OptionalTensor<'a> {
    fn variant<A: MapAccess<'de>>(key: &'de str, map: &mut A) -> Result<Self, A::Error> {
        match key {
            "as_tensor" => Ok(OptionalTensor(Some(map.next_value::<TensorArgument<'a>>()?.name))),
            "as_none" => map.next_value::<IgnoredAny>().map(|_| OptionalTensor(None)),
            other => Err(A::Error::custom(format_args!("{other} is no optional tensor"))),
        }
    }
}

impl<'de: 'a, 'a> Union<'de> for Argument<'a> {
    fn variant<A: MapAccess<'de>>(key: &'de str, map: &mut A) -> Result<Self, A::Error> {
        let names = |tensors: Vec<TensorArgument<'a>>| tensors.into_iter().map(|t| t.name);
        Ok(match key {
            "as_tensor" => Argument::Tensor(map.next_value::<TensorArgument<'a>>()?.name),
            "as_tensors" => Argument::Tensors(names(map.next_value()?).collect()),
            "as_nested_tensors" => Argument::Tensors(map.next_value::<Vec<_>>()?.into_iter().flat_map(names).collect()),
            "as_optional_tensor" => Argument::Tensors(map.next_value::<OptionalTensor<'a>>()?.0.into_iter().collect()),
            "as_optional_tensors" => {
                let tensors = map.next_value::<Vec<OptionalTensor<'a>>>()?;
                Argument::Tensors(tensors.into_iter().filter_map(|t| t.0).collect())
            }
            "as_string_to_argument" => Argument::Tensors(map.next_value::<Dictionary<'a>>()?.0),
            "as_graph" => Argument::Graph(map.next_value()?),
            "as_bool" => Argument::Bool(map.next_value()?),
            _ => {
                map.next_value::<IgnoredAny>()?;
                if PLAIN.contains(&key) { Argument::Plain } else { Argument::Unknown(key) }
            }
        })
    }
}

/// The tensors of a dictionary of arguments.
struct Dictionary<'a>(Vec<&'a str>);

impl<'de: 'a, 'a> Deserialize<'de> for Dictionary<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(DictionaryVisitor(PhantomData))
    }
}

struct DictionaryVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for DictionaryVisitor<'a> {
    type Value = Dictionary<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a dictionary of arguments")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Dictionary<'a>, A::Error> {
        let mut tensors = Vec::new();
        while let Some((_, argument)) = map.next_entry::<IgnoredAny, Argument<'a>>()? {
            match argument {
                Argument::Graph(_) | Argument::Unknown(_) => {
                    return Err(A::Error::custom("a dictionary of something else than tensors and numbers"));
                }
                other => tensors.extend(other.tensors()),
            }
        }
        Ok(Dictionary(tensors))
    }
}

impl<'de: 'a, 'a> Union<'de> for InputSpec<'a> {
    fn variant<A: MapAccess<'de>>(key: &'de str, map: &mut A) -> Result<Self, A::Error> {
        #[derive(serde::Deserialize)]
        struct State<'a> {
            #[serde(borrow)]
            arg: TensorArgument<'a>,
            #[serde(alias = "buffer_name", alias = "parameter_name", borrow)]
            fqn: Cow<'a, str>,
        }
        let kind = match key {
            "buffer" => InputKind::Buffer,
            "user_input" => {
                let name = map.next_value::<AnyArgument<'a>>()?.arg.tensors().first().copied();
                return Ok(InputSpec { kind: InputKind::UserInput, name, state: None });
            }
            "parameter" => InputKind::Other,
            "tensor_constant" => {
                let name = Some(map.next_value::<OneTensor<'a>>()?.arg.name);
                return Ok(InputSpec { kind: InputKind::Other, name, state: None });
            }
            _ => {
                map.next_value::<IgnoredAny>()?;
                return Ok(InputSpec { kind: InputKind::Other, name: None, state: None });
            }
        };
        let State { arg, fqn } = map.next_value::<State<'a>>()?;
        Ok(InputSpec { kind, name: Some(arg.name), state: Some(fqn) })
    }
}

/// A specification of any argument.
#[derive(serde::Deserialize)]
struct AnyArgument<'a> {
    #[serde(borrow)]
    arg: Argument<'a>,
}

/// A specification of a tensor.
#[derive(serde::Deserialize)]
struct OneTensor<'a> {
    #[serde(borrow)]
    arg: TensorArgument<'a>,
}

impl<'de: 'a, 'a> Union<'de> for OutputSpec<'a> {
    fn variant<A: MapAccess<'de>>(key: &'de str, map: &mut A) -> Result<Self, A::Error> {
        #[derive(serde::Deserialize)]
        struct Mutation<'a> {
            #[serde(borrow)]
            arg: TensorArgument<'a>,
            #[serde(alias = "buffer_name", alias = "parameter_name", alias = "user_input_name", borrow)]
            target: Cow<'a, str>,
        }
        let kind: fn(Cow<'a, str>) -> OutputKind<'a> = match key {
            "buffer_mutation" => OutputKind::Buffer,
            "parameter_mutation" => OutputKind::Parameter,
            "user_input_mutation" => OutputKind::UserInput,
            "user_output" => {
                let name = map.next_value::<AnyArgument<'a>>()?.arg.tensors().first().copied();
                return Ok(OutputSpec { kind: OutputKind::User, name });
            }
            "loss_output" | "gradient_to_parameter" | "gradient_to_user_input" => {
                let name = map.next_value::<OneTensor<'a>>()?.arg.name;
                return Ok(OutputSpec { kind: OutputKind::User, name: Some(name) });
            }
            "token" => {
                map.next_value::<IgnoredAny>()?;
                return Ok(OutputSpec { kind: OutputKind::Token, name: None });
            }
            other => return Err(A::Error::custom(format_args!("{other}: an unknown kind of output"))),
        };
        let mutation = map.next_value::<Mutation<'a>>()?;
        Ok(OutputSpec { kind: kind(mutation.target), name: Some(mutation.arg.name) })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Node<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NodeVisitor(PhantomData))
    }
}

struct NodeVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for NodeVisitor<'a> {
    type Value = Node<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node<'a>, A::Error> {
        let (mut first_key, mut target, mut inputs, mut outputs) = (None, None, None, None);
        let (mut metadata, mut name, mut returns_one) = (None, None, None);
        while let Some(key) = map.next_key::<&'a str>()? {
            first_key = first_key.or(Some(key));
            match key {
                "target" => set(&mut target, map.next_value()?)?,
                "inputs" => set(&mut inputs, map.next_value()?)?,
                "outputs" => set(&mut outputs, map.next_value()?)?,
                "metadata" => set(&mut metadata, map.next_value()?)?,
                "name" => set(&mut name, map.next_value::<Option<_>>()?)?,
                "is_hop_single_tensor_return" => set(&mut returns_one, map.next_value::<Option<_>>()?)?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let missing = |field| A::Error::custom(format_args!("a node without {field}"));
        Ok(Node {
            target: target.ok_or_else(|| missing("target"))?,
            inputs: inputs.ok_or_else(|| missing("inputs"))?,
            outputs: outputs.ok_or_else(|| missing("outputs"))?,
            metadata,
            name: name.flatten(),
            returns_one: returns_one.flatten() == Some(true),
            first_key: first_key.unwrap_or_default(),
        })
    }
}

/// Fills a field once: python takes the last of two equal keys, and a reader that takes the first would be fooled.
fn set<T, E: serde::de::Error>(field: &mut Option<T>, value: T) -> Result<(), E> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::custom("a key twice")),
    }
}
