//! One graph with its names: who defines a value, and which values decide about it.

use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;

use crate::error::Error;
use crate::pt2::alias_table::{self, Arguments, Facts, is_higher_order};
use crate::pt2::fault::Fault;
use crate::pt2::graph::{Argument, Graph, Node, Program, require_short};

/// The functional copy.
pub const COPY: &str = "torch.ops.aten.copy.default";

/// A value of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// An input.
    Input(usize),
    /// What a node returns: a tensor, or several.
    Node(usize),
    /// One of several results of a node.
    Item(usize, usize),
    /// An element of a list that is one of several results.
    Element(usize, usize, usize),
}

impl Key {
    /// The node that computes it.
    #[must_use]
    pub fn node(self) -> Option<usize> {
        match self {
            Key::Input(_) => None,
            Key::Node(n) | Key::Item(n, _) | Key::Element(n, ..) => Some(n),
        }
    }
}

/// A graph with its names, and the nodes that matter whatever the outputs are.
pub struct Scope<'p, 'a> {
    /// The graph.
    pub graph: &'p Graph<'a>,
    /// The submodules that lead to it, separated by dots; empty for the top graph.
    pub path: String,
    /// The copies, as positions of nodes.
    pub copies: Vec<usize>,
    names: HashMap<&'a str, Key>,
    metas: HashMap<&'a str, &'a RawValue>,
    facts: HashMap<&'a str, Facts>,
    /// The calls of higher-order operators.
    pub higher_order: Vec<usize>,
    /// The calls that write in place.
    pub writers: Vec<usize>,
}

impl<'p, 'a> Scope<'p, 'a> {
    /// The scopes of the program: the top graph and each body, outer ones first.
    pub fn all(program: &'p Program<'a>) -> Result<Vec<Self>, Error> {
        let is_functional = program.is_functional();
        let mut scopes = Vec::new();
        let mut pending = vec![(String::new(), &program.graph_module.graph)];
        while let Some((path, graph)) = pending.pop() {
            let inner = graph.bodies().map(|body| {
                let path = if path.is_empty() { body.name.into() } else { format!("{path}.{}", body.name) };
                (path, &body.graph)
            });
            let first = pending.len();
            pending.extend(inner);
            pending[first..].iter().try_for_each(|(path, _)| require_short(path))?;
            pending[first..].reverse();
            scopes.push(Scope::new(graph, path, is_functional)?);
        }
        Ok(scopes)
    }

    fn new(graph: &'p Graph<'a>, path: String, is_functional: bool) -> Result<Self, Error> {
        let mut scope = Scope {
            graph,
            path,
            copies: Vec::new(),
            names: HashMap::with_capacity(graph.inputs.len() + graph.nodes.len()),
            metas: HashMap::with_capacity(graph.tensor_values.0.len()),
            facts: HashMap::new(),
            higher_order: Vec::new(),
            writers: Vec::new(),
        };
        for (name, meta) in &graph.tensor_values.0 {
            if scope.metas.insert(name, meta).is_some() {
                return Err(Fault::DuplicateName.at(name));
            }
        }
        for (i, input) in graph.inputs.iter().enumerate() {
            if let Argument::Tensor(name) = input {
                scope.define(name, Key::Input(i))?;
            }
        }
        for (n, node) in graph.nodes.iter().enumerate() {
            for (name, key) in results(n, node) {
                scope.define(name, key)?;
            }
            if node.target == COPY {
                scope.copies.push(n);
            } else if is_higher_order(node.target) {
                scope.higher_order.push(n);
            }
            let facts =
                scope.facts.entry(node.target).or_insert_with(|| alias_table::facts(node.target, is_functional));
            if !facts.writes.is_none() {
                scope.writers.push(n);
            }
        }
        Ok(scope)
    }

    fn define(&mut self, name: &'a str, key: Key) -> Result<(), Error> {
        require_short(name)?;
        match self.names.insert(name, key) {
            None => Ok(()),
            Some(_) => Err(Fault::DuplicateName.at(name)),
        }
    }

    /// The facts of a node's operator.
    #[must_use]
    pub fn facts(&self, node: &Node<'_>) -> Facts {
        self.facts[node.target]
    }

    /// The value of this name, which must be defined before node `user`.
    pub fn find(&self, name: &str, user: usize) -> Result<Key, Error> {
        match self.names.get(name) {
            Some(&key) if key.node().is_none_or(|n| n < user) => Ok(key),
            _ => Err(Fault::UnknownName.at(name)),
        }
    }

    /// The value's name; several results of one node have none together.
    #[must_use]
    pub fn name(&self, key: Key) -> Option<&'a str> {
        match key {
            Key::Input(i) => self.graph.inputs[i].tensors().first().copied(),
            Key::Node(n) => single(&self.graph.nodes[n]).or(self.graph.nodes[n].name),
            Key::Item(n, i) => {
                results(n, &self.graph.nodes[n]).find(|&(_, k)| k == Key::Item(n, i)).map(|(name, _)| name)
            }
            Key::Element(n, ..) => results(n, &self.graph.nodes[n]).find(|&(_, k)| k == key).map(|(name, _)| name),
        }
    }

    /// The type of the value of this name.
    #[must_use]
    pub fn meta(&self, name: &str) -> Option<&'a RawValue> {
        self.metas.get(name).copied()
    }

    /// Destination and source of a copy.
    pub fn copy_operands(&self, n: usize) -> Result<[Key; 2], Error> {
        let node = &self.graph.nodes[n];
        let operand = |wanted: &str| match node.inputs.iter().find(|i| i.name == wanted).map(|i| &i.arg) {
            Some(Argument::Tensor(name)) => self.find(name, n),
            _ => Err(Fault::MalformedNode.at(single(node).unwrap_or(wanted))),
        };
        Ok([operand("self")?, operand("src")?])
    }

    /// Whether this value is a copy.
    #[must_use]
    pub fn is_copy(&self, key: Key) -> bool {
        matches!(key, Key::Node(n) if self.graph.nodes[n].target == COPY)
    }

    /// The tensors that are passed as one of these arguments, in order.
    pub fn arguments(&self, n: usize, which: Arguments) -> Result<Vec<Key>, Error> {
        let inputs = self.graph.nodes[n].inputs.iter().filter(|i| which.has(i.name));
        inputs.flat_map(|i| i.arg.tensors()).map(|name| self.find(name, n)).collect()
    }

    /// All tensors that are passed, each once.
    pub fn tensor_operands(&self, n: usize) -> Result<Vec<Key>, Error> {
        let mut operands = self.arguments(n, Arguments::All)?;
        let mut seen = HashSet::new();
        operands.retain(|&key| seen.insert(key));
        Ok(operands)
    }

    /// Those of the names that some node reads.
    #[must_use]
    pub fn read_by_nodes(&self, names: &HashSet<&str>) -> HashSet<&'a str> {
        if names.is_empty() {
            return HashSet::new();
        }
        let arguments = self.graph.nodes.iter().flat_map(|node| node.inputs.iter().map(|i| &i.arg));
        arguments.flat_map(Argument::tensors).copied().filter(|name| names.contains(name)).collect()
    }

    /// The values that decide about a value: what it may alias, copies, or keeps the form of.
    pub fn operands(&self, key: Key) -> Result<Vec<Key>, Error> {
        let n = match key {
            Key::Input(_) => return Ok(Vec::new()),
            Key::Item(n, _) => return Ok(vec![Key::Node(n)]),
            Key::Element(n, i, _) => return Ok(vec![Key::Item(n, i)]),
            Key::Node(n) => n,
        };
        let node = &self.graph.nodes[n];
        if node.target == COPY {
            return Ok(self.copy_operands(n)?.to_vec());
        }
        let facts = self.facts(node);
        match (facts.aliases, node.inputs.first().map(|i| &i.arg)) {
            (Arguments::All, _) => self.tensor_operands(n),
            (named, _) if !named.is_none() => self.arguments(n, named),
            (_, Some(Argument::Tensor(name))) if facts.keeps => Ok(vec![self.find(name, n)?]),
            _ => Ok(Vec::new()),
        }
    }
}

/// The tensors that a node returns. Lists among several results are one result each.
pub fn results<'n, 'a>(n: usize, node: &'n Node<'a>) -> impl Iterator<Item = (&'a str, Key)> + 'n {
    let returns_tensor = single(node).is_some();
    let is_list = matches!(node.outputs[..], [Argument::Tensors(_)]);
    node.outputs.iter().enumerate().flat_map(move |(i, output)| {
        output.tensors().iter().enumerate().map(move |(j, &name)| {
            let key = match output {
                Argument::Tensors(_) if is_list => Key::Item(n, j),
                Argument::Tensors(_) => Key::Element(n, i, j),
                _ if returns_tensor => Key::Node(n),
                _ => Key::Item(n, i),
            };
            (name, key)
        })
    })
}

/// The name of a node that returns one tensor.
#[must_use]
pub fn single<'a>(node: &Node<'a>) -> Option<&'a str> {
    match node.outputs[..] {
        [Argument::Tensor(name)] if !is_higher_order(node.target) || node.returns_one => Some(name),
        _ => None,
    }
}
