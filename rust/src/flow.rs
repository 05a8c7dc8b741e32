//! What is decided about in place: a whole graph in execution order, with what each node reads.
//!
//! [`crate::problem::Problem`] is enough to collapse copies, because no value changes when one goes. Writing in place
//! changes values, so here every read counts, and when it happens.
//!
//! Node i defines value i. A node runs at time i; *position* p is the moment right before node p, so the number of
//! nodes is the end of the graph.

use crate::error::Error;
use crate::ids::ValueId;
use crate::problem::Output;

/// What storage a node's result has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// An input of the graph.
    Placeholder,
    /// New storage.
    Fresh,
    /// Storage that these values may have, or a part of it. That may still be new storage: a view that the consumer
    /// turns into a copy, for example.
    Alias(Vec<ValueId>),
}

/// One node of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// For messages and the textual form; front ends may leave it empty.
    pub name: String,
    /// The storage of its result.
    pub storage: Storage,
    /// The values that it reads, views included.
    pub reads: Vec<ValueId>,
    /// The values whose storage it writes although the graph is functional otherwise.
    pub writes: Vec<ValueId>,
}

/// A node that could write its result over an existing value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node that would write.
    pub node: ValueId,
    /// The value that it would write: the node's own, or the part of its result that stands for the argument.
    pub result: ValueId,
    /// The value that would be overwritten: an operand, or the target that the result is written back to.
    pub over: ValueId,
    /// The operands that the node reads while it writes, so that they must lie elsewhere.
    pub operands: Vec<ValueId>,
}

/// A graph with its outputs and the candidates. Build it, then call [`Flow::validate`] once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Nodes in execution order; placeholders first.
    pub nodes: Vec<Node>,
    /// Outputs in order.
    pub outputs: Vec<Output>,
    /// Candidates; of those for one result the first that is possible wins.
    pub candidates: Vec<Candidate>,
    /// Nodes that copy their only operand and change nothing: a clone, an expansion to the same sizes.
    pub identities: Vec<ValueId>,
}

impl Flow {
    /// The node that defines a value.
    #[must_use]
    pub fn node(&self, value: ValueId) -> &Node {
        &self.nodes[value.index()]
    }

    /// The first position after all placeholders.
    #[must_use]
    pub fn start(&self) -> usize {
        self.nodes.iter().rposition(|n| n.storage == Storage::Placeholder).map_or(0, |i| i + 1)
    }

    /// The value's name, or a made-up one.
    #[must_use]
    pub fn name(&self, value: ValueId) -> String {
        let name = &self.node(value).name;
        if name.is_empty() { format!("%{}", value.0) } else { name.clone() }
    }

    /// Checks what [`crate::reinplace::schedule`] takes for granted.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |message: String| Err(Error::InvalidProblem(message));
        if u32::try_from(self.nodes.len()).is_err() {
            return refuse("the graph has more than 2^32 nodes".into());
        }
        let known = |v: &ValueId| v.index() < self.nodes.len();
        for (i, node) in self.nodes.iter().enumerate() {
            let aliases: &[ValueId] = if let Storage::Alias(of) = &node.storage { of } else { &[] };
            if aliases.iter().chain(&node.reads).chain(&node.writes).any(|v| v.index() >= i) {
                return refuse(format!("node {i}: an operand that does not come before it"));
            }
        }
        let mut is_target = vec![false; self.nodes.len()];
        for (i, output) in self.outputs.iter().enumerate() {
            match output {
                Output::Mutation { target, value, .. } => {
                    if !known(target) || !known(value) {
                        return refuse(format!("output {i}: an unknown value"));
                    }
                    if self.node(*target).storage != Storage::Placeholder {
                        return refuse(format!("output {i}: its target is no placeholder"));
                    }
                    if std::mem::replace(&mut is_target[target.index()], true) {
                        return refuse(format!("output {i}: its target is mutated twice"));
                    }
                }
                Output::User(value) if !known(value) => return refuse(format!("output {i}: an unknown value")),
                Output::User(_) | Output::Other => {}
            }
        }
        for (i, &v) in self.identities.iter().enumerate() {
            if !known(&v) || self.node(v).reads.len() != 1 || self.node(v).storage != Storage::Fresh {
                return refuse(format!("identity {i}: no new value of one operand"));
            }
        }
        for (i, c) in self.candidates.iter().enumerate() {
            if ![c.node, c.result, c.over].iter().chain(&c.operands).all(known) {
                return refuse(format!("candidate {i}: an unknown value"));
            }
            if c.over >= c.node || c.result < c.node || c.operands.iter().any(|o| *o >= c.node) {
                return refuse(format!("candidate {i}: its values are out of order"));
            }
        }
        Ok(())
    }
}
