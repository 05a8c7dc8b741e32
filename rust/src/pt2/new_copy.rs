//! Copies that a plan adds, as JSON in torch's spelling.

use std::fmt::Write;

use serde_json::value::RawValue;

use crate::error::Error;
use crate::plan::Plan;
use crate::problem::Output;
use crate::pt2::extract::Extract;
use crate::pt2::fault::Fault;
use crate::pt2::graph::{Argument, Graph, Pairs};
use crate::pt2::scope::{COPY, Scope};

/// Provenance that a copy takes over from the value that it copies.
const INHERITED: &[&str] = &["stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn"];

/// A copy to be added.
pub struct NewCopy {
    /// The output that reads it.
    output: usize,
    name: String,
    /// The node.
    pub node: String,
    /// The entry of its type.
    pub meta: String,
}

/// All copies to be added to one graph, in output order.
pub struct NewCopies(Vec<NewCopy>);

impl NewCopies {
    /// Writes the copies that the plan asks for.
    pub fn new(scope: &Scope<'_, '_>, extract: &Extract, plan: &Plan) -> Result<Self, Error> {
        let mut number = plan.inserts.first().map_or(0, |_| last_number(scope.graph));
        let mut copies = Vec::with_capacity(plan.inserts.len());
        for insert in &plan.inserts {
            number += 1;
            let name = format!("copy_{number}");
            let key = |value: crate::ids::ValueId| extract.keys[value.index()];
            let source = key(insert.value).ok_or_else(|| Fault::Internal.at("a value without a name"))?;
            let destination = match extract.problem.outputs[insert.output] {
                Output::Mutation { target, .. } => key(target).unwrap_or(source),
                _ => source,
            };
            let named = |key| scope.name(key).ok_or_else(|| Fault::Internal.at("a value without a name"));
            let meta = scope.meta(named(destination)?).ok_or_else(|| Fault::UnknownName.at(&name))?;
            let provenance = source.node().and_then(|n| scope.graph.nodes[n].metadata);
            copies.push(NewCopy {
                output: insert.output,
                node: node(&name, named(destination)?, named(source)?, provenance),
                meta: format!("\"{name}\": {}", type_of_copy(meta)?),
                name,
            });
        }
        Ok(NewCopies(copies))
    }

    /// The name of the copy that an output reads.
    #[must_use]
    pub fn at_output(&self, output: usize) -> Option<&str> {
        let at = self.0.binary_search_by_key(&output, |copy| copy.output).ok()?;
        Some(&self.0[at].name)
    }

    /// The copies.
    pub fn iter(&self) -> impl Iterator<Item = &NewCopy> {
        self.0.iter()
    }
}

/// The largest number that a name of the form `copy_N` has in the graph.
fn last_number(graph: &Graph<'_>) -> u64 {
    let values = [
        &graph.tensor_values,
        &graph.sym_int_values,
        &graph.sym_bool_values,
        &graph.sym_float_values,
        &graph.custom_obj_values,
    ];
    let of_values = values.into_iter().flat_map(|Pairs(pairs)| pairs.iter().map(|(name, _)| *name));
    let of_graph = graph.inputs.iter().flat_map(Argument::tensors).copied();
    let of_nodes = graph.nodes.iter().flat_map(|n| n.outputs.iter().flat_map(Argument::tensors).copied().chain(n.name));
    let names = of_values.chain(of_graph).chain(of_nodes).chain(graph.bodies().map(|b| b.name));
    names.filter_map(|name| name.strip_prefix("copy_")?.parse().ok()).filter(|&n| n < u64::MAX / 2).max().unwrap_or(0)
}

fn node(name: &str, destination: &str, source: &str, provenance: Option<&RawValue>) -> String {
    let argument = |role: &str, tensor: &str| {
        format!(r#"{{"name": "{role}", "arg": {{"as_tensor": {{"name": "{tensor}"}}}}, "kind": 1}}"#)
    };
    let metadata = provenance.and_then(|raw| serde_json::from_str::<Pairs<'_>>(raw.get()).ok()).unwrap_or_default();
    let inherited: Vec<_> = metadata
        .0
        .iter()
        .filter(|(key, _)| INHERITED.contains(key))
        .map(|(key, value)| format!("\"{key}\": {}", value.get()))
        .collect();
    format!(
        r#"{{"target": "{COPY}", "inputs": [{}, {}], "outputs": [{{"as_tensor": {{"name": "{name}"}}}}], "metadata": {{{}}}, "is_hop_single_tensor_return": null, "name": "{name}"}}"#,
        argument("self", destination),
        argument("src", source),
        inherited.join(", ")
    )
}

/// The type of a copy into a tensor of this type: new memory, and no leaf of autograd.
fn type_of_copy(meta: &RawValue) -> Result<String, Error> {
    let Pairs(fields) = serde_json::from_str(meta.get()).map_err(|e| Fault::BadJson.at(e))?;
    let mut text = String::from("{");
    for (i, (key, value)) in fields.iter().enumerate() {
        let value = match *key {
            "requires_grad" => "false",
            "storage_offset" => r#"{"as_int": 0}"#,
            _ => value.get(),
        };
        let comma = if i == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}\"{key}\": {value}");
    }
    text.push('}');
    Ok(text)
}
