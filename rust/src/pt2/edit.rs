//! Plan -> graph JSON, as replacements of parts of the text.
//!
//! To collapse `copy(p, v)` to v, every slot that names the copy names v: arguments of later nodes, outputs of the graph
//! and of the signature, interfaces of submodules. Then the copy goes, with its type, and with what only it read.
//! Whatever else the text says stays as it is, byte for byte; names in bodies belong to the bodies.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::ops::Range;

use crate::error::Error;
use crate::ids::ValueId;
use crate::plan::{Decision, Plan};
use crate::pt2::extract::Extract;
use crate::pt2::fault::Fault;
use crate::pt2::graph::{Argument, GraphModule, Pairs, Spanned, position};
use crate::pt2::new_copy::NewCopies;
use crate::pt2::scope::{Key, Scope, results};
use crate::pt2::zip::Body;

/// A part of the text and what takes its place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Splice {
    start: usize,
    end: usize,
    text: String,
}

/// A text with replacements, which is never built.
#[derive(Debug)]
pub struct Edited<'t> {
    text: Cow<'t, str>,
    splices: &'t [Splice],
}

impl<'t> Edited<'t> {
    /// The text with these replacements, which are in order and do not overlap.
    pub fn new(text: Cow<'t, str>, splices: &'t [Splice]) -> Result<Self, Error> {
        let is_apart = splices.windows(2).all(|w| w[0].end <= w[1].start);
        let is_inside = splices.iter().all(|s| text.get(s.start..s.end).is_some());
        if is_apart && is_inside { Ok(Edited { text, splices }) } else { Err(Fault::Internal.at("overlapping edits")) }
    }

    fn pieces(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.splices.iter().map(|s| s.end));
        let ends = self.splices.iter().map(|s| s.start).chain(std::iter::once(self.text.len()));
        let kept = starts.zip(ends).map(|(start, end)| &self.text[start..end]);
        let new = self.splices.iter().map(|s| s.text.as_str()).chain(std::iter::once(""));
        kept.zip(new).flat_map(|(kept, new)| [kept, new])
    }
}

impl std::fmt::Display for Edited<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.pieces().try_for_each(|piece| f.write_str(piece))
    }
}

impl Body for Edited<'_> {
    fn size(&self) -> u64 {
        self.pieces().map(|p| p.len() as u64).sum()
    }

    fn crc(&self) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        self.pieces().for_each(|p| crc.update(p.as_bytes()));
        crc.finalize()
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        // Replacements are many and small.
        let mut out = io::BufWriter::with_capacity(1 << 16, out);
        self.pieces().try_for_each(|piece| out.write_all(piece.as_bytes()))?;
        out.flush()
    }
}

/// The edits of one graph.
#[derive(Debug)]
pub struct Edits {
    /// Replacements of parts of the text.
    pub splices: Vec<Splice>,
    /// How many copies go, those included that nobody reads any more.
    pub copies_removed: usize,
}

/// The edits of one graph; `module` for the top graph, whose signature names its outputs too.
pub fn edit<'a>(
    text: &'a str,
    scope: &Scope<'_, 'a>,
    extract: &Extract,
    plan: &Plan,
    module: Option<&GraphModule<'a>>,
) -> Result<Edits, Error> {
    let renamed = renamed(scope, extract, plan)?;
    let mut editor = Editor { text, scope, module, renamed, removed: HashSet::new(), splices: Vec::new() };
    editor.remove(plan, extract);
    let copies = NewCopies::new(scope, extract, plan)?;
    editor.rename_arguments();
    editor.rename_outputs(plan, &copies);
    editor.nodes(&copies)?;
    editor.types(&copies);
    let copies_removed = scope.copies.iter().filter(|n| editor.removed.contains(n)).count();
    Ok(Edits { splices: editor.splices, copies_removed })
}

/// The new name for each name that goes.
fn renamed<'a>(scope: &Scope<'_, 'a>, extract: &Extract, plan: &Plan) -> Result<HashMap<&'a str, &'a str>, Error> {
    let name = |value: ValueId| {
        let name = extract.keys[value.index()].and_then(|key| scope.name(key));
        name.ok_or_else(|| Fault::Internal.at("a value without a name"))
    };
    let mut renamed = HashMap::new();
    for (copy, decision) in &plan.decisions {
        if let Decision::Collapse(base) = decision {
            renamed.insert(name(*copy)?, name(*base)?);
        }
    }
    Ok(renamed)
}

struct Editor<'s, 'p, 'a> {
    text: &'a str,
    scope: &'s Scope<'p, 'a>,
    module: Option<&'p GraphModule<'a>>,
    renamed: HashMap<&'a str, &'a str>,
    /// Positions of the nodes that go.
    removed: HashSet<usize>,
    splices: Vec<Splice>,
}

impl<'a> Editor<'_, '_, 'a> {
    fn splice(&mut self, range: Range<usize>, text: impl Into<String>) {
        self.splices.push(Splice { start: range.start, end: range.end, text: text.into() });
    }

    fn new_name(&self, name: &'a str) -> &'a str {
        self.renamed.get(name).copied().unwrap_or(name)
    }

    /// Decides which nodes go: the collapsed copies, and pure calls that only they read.
    fn remove(&mut self, plan: &Plan, extract: &Extract) {
        let mut candidates = Vec::new();
        for (copy, decision) in &plan.decisions {
            if let (Decision::Collapse(_), Some(Key::Node(n))) = (decision, extract.keys[copy.index()]) {
                self.removed.insert(n);
                // A destination may have been computed for the copy alone; sources are read by others now.
                candidates.extend(self.scope.copy_operands(n).ok().and_then(|[destination, _]| destination.node()));
            }
        }
        candidates.retain(|n| !self.removed.contains(n));
        if candidates.is_empty() {
            return;
        }
        let mut uses = self.count_uses();
        while let Some(n) = candidates.pop() {
            let node = &self.scope.graph.nodes[n];
            let is_read = results(n, node).any(|(name, _)| uses.get(name).is_some_and(|&count| count > 0));
            if is_read || self.scope.facts(node).is_impure || !self.removed.insert(n) {
                continue;
            }
            for input in &node.inputs {
                for name in input.arg.tensors() {
                    uses.entry(self.new_name(name)).and_modify(|count| *count -= 1);
                }
            }
            candidates.extend(self.operand_nodes(n));
        }
    }

    /// The nodes, not removed so far, whose results node `n` reads.
    fn operand_nodes(&self, n: usize) -> Vec<usize> {
        let names = self.scope.graph.nodes[n].inputs.iter().flat_map(|input| input.arg.tensors());
        let nodes = names.filter_map(|name| self.scope.find(name, n).ok()?.node());
        nodes.filter(|n| !self.removed.contains(n)).collect()
    }

    /// How often each name is used once the collapsed copies are gone.
    fn count_uses(&self) -> HashMap<&'a str, usize> {
        let mut uses = HashMap::new();
        let nodes = self.scope.graph.nodes.iter().enumerate().filter(|(n, _)| !self.removed.contains(n));
        let of_nodes = nodes.flat_map(|(_, node)| node.inputs.iter().map(|i| &i.arg));
        let of_outputs = self.scope.graph.outputs.iter().map(|o| &o.value);
        for argument in of_nodes.chain(of_outputs).chain(self.interfaces()) {
            for name in argument.tensors() {
                *uses.entry(self.new_name(name)).or_insert(0) += 1;
            }
        }
        uses
    }

    /// The arguments and results of preserved submodules.
    fn interfaces(&self) -> impl Iterator<Item = &Argument<'a>> {
        let calls = self.module.iter().flat_map(|m| &m.module_call_graph);
        calls.filter_map(|call| call.signature.as_ref()).flat_map(|s| s.inputs.iter().chain(&s.outputs))
    }

    fn rename_arguments(&mut self) {
        let nodes = self.scope.graph.nodes.iter().enumerate().filter(|(n, _)| !self.removed.contains(n));
        let arguments = nodes.flat_map(|(_, node)| node.inputs.iter().map(|i| &i.arg));
        let mut splices = Vec::new();
        for name in arguments.chain(self.interfaces()).flat_map(Argument::tensors) {
            if let Some(new) = self.renamed.get(name) {
                let start = position(self.text, name);
                splices.push(Splice { start, end: start + name.len(), text: (*new).into() });
            }
        }
        self.splices.append(&mut splices);
    }

    /// Outputs of the graph and of the signature, with new names and in the new order.
    fn rename_outputs(&mut self, plan: &Plan, copies: &NewCopies) {
        let outputs = &self.scope.graph.outputs;
        let names: Vec<Option<String>> = (0..outputs.len())
            .map(|i| {
                let old = outputs[i].value.tensors().first()?;
                Some(copies.at_output(i).map_or_else(|| self.new_name(old).to_string(), str::to_string))
            })
            .collect();
        let mut origin: Vec<usize> = (0..outputs.len()).collect();
        if let Some(order) = &plan.order {
            let mut places = order.clone();
            places.sort_unstable();
            for (&place, &from) in places.iter().zip(order) {
                origin[place] = from;
            }
        }
        let specs = self.module.map(|m| &m.signature.output_specs);
        let mut splices = Vec::new();
        for (i, &from) in origin.iter().enumerate() {
            let graph_name = outputs[from].value.tensors().first().copied();
            splices.extend(self.replace(&outputs[i], &outputs[from], graph_name, names[from].as_deref()));
            if let Some(specs) = specs {
                splices.extend(self.replace(&specs[i], &specs[from], specs[from].value.name, names[from].as_deref()));
            }
        }
        self.splices.append(&mut splices);
    }

    /// Puts the text of `from`, with another name in it, in the place of `place`.
    fn replace<T>(
        &self,
        place: &Spanned<'a, T>,
        from: &Spanned<'a, T>,
        name: Option<&'a str>,
        new_name: Option<&str>,
    ) -> Option<Splice> {
        let mut text = from.text.to_string();
        if let (Some(name), Some(new_name)) = (name, new_name) {
            let start = position(from.text, name);
            text.replace_range(start..start + name.len(), new_name);
        }
        let start = position(self.text, place.text);
        (text != place.text).then(|| Splice { start, end: start + place.text.len(), text })
    }

    /// Nodes that go, and nodes that come.
    fn nodes(&mut self, copies: &NewCopies) -> Result<(), Error> {
        let nodes = &self.scope.graph.nodes;
        let is_removed: Vec<bool> = (0..nodes.len()).map(|n| self.removed.contains(&n)).collect();
        let text = self.text;
        let new: Vec<String> = copies.iter().map(|c| c.node.clone()).collect();
        if nodes.is_empty() && !new.is_empty() {
            let start = position(text, empty_nodes(text)?) + 1;
            self.splice(start..start, new.join(", "));
            return Ok(());
        }
        self.list(&is_removed, &new, |n| nodes[n].range(text));
        Ok(())
    }

    /// The types of values that go and come.
    fn types(&mut self, copies: &NewCopies) {
        let nodes = self.scope.graph.nodes.iter().enumerate().filter(|(n, _)| self.removed.contains(n));
        let removed: HashSet<&str> = nodes.flat_map(|(n, node)| results(n, node)).map(|(name, _)| name).collect();
        let Pairs(types) = &self.scope.graph.tensor_values;
        let is_removed: Vec<bool> = types.iter().map(|(name, _)| removed.contains(name)).collect();
        let new: Vec<String> = copies.iter().map(|c| c.meta.clone()).collect();
        let text = self.text;
        self.list(&is_removed, &new, |i| {
            let (name, meta) = types[i];
            position(text, name) - 1..position(text, meta.get()) + meta.get().len()
        });
    }

    /// Removes elements of a list or dictionary, each with a comma, and appends new ones.
    fn list(&mut self, is_removed: &[bool], new: &[String], range: impl Fn(usize) -> Range<usize>) {
        let mut i = 0;
        while i < is_removed.len() {
            let run = is_removed[i..].iter().take_while(|&&r| r).count();
            if run > 0 {
                // A run takes the comma before it along, or the one behind it where it comes first.
                let (start, end) = match (i, i + run) {
                    (0, next) if next < is_removed.len() => (range(0).start, range(next).start),
                    (0, next) => (range(0).start, range(next - 1).end),
                    (first, next) => (range(first - 1).end, range(next - 1).end),
                };
                self.splice(start..end, "");
            }
            i += run.max(1);
        }
        if let (Some(last), false) = (is_removed.len().checked_sub(1), new.is_empty()) {
            let end = range(last).end;
            let comma = if is_removed.iter().all(|&r| r) { "" } else { ", " };
            self.splice(end..end, comma.to_string() + &new.join(", "));
        }
    }
}

/// The text of an empty list of nodes. No name in it tells where it is.
fn empty_nodes(text: &str) -> Result<&str, Error> {
    #[derive(serde::Deserialize)]
    struct Document<'a> {
        #[serde(borrow)]
        graph_module: Module<'a>,
    }
    #[derive(serde::Deserialize)]
    struct Module<'a> {
        #[serde(borrow)]
        graph: Nodes<'a>,
    }
    #[derive(serde::Deserialize)]
    struct Nodes<'a> {
        #[serde(borrow)]
        nodes: &'a serde_json::value::RawValue,
    }
    let document: Document<'_> = serde_json::from_str(text).map_err(|e| Fault::BadJson.at(e))?;
    Ok(document.graph_module.graph.nodes.get())
}
