//! Everything that knows Python: conversions, the release of the GIL, errors. No decisions.
//!
//! A problem crosses the border once, as flat lists of integers, because one list is several times cheaper to convert
//! than as many tuples. `_core.pyi` describes the encoding; `_extract.py` is its only writer.

#![allow(missing_docs, clippy::needless_pass_by_value)]

mod archive;

use std::collections::HashMap;
use std::io;

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::check;
use crate::error::Error;
use crate::findings::{self, FindingCode};
use crate::flow::{Candidate, Node, Storage};
use crate::flow_text;
use crate::ids::{LayoutId, SymbolId, ValueId};
use crate::layout::{Dim, Format, Layout};
use crate::parallel_copy::Step;
use crate::plan::{Decision, Form};
use crate::problem::{Def, InputKind, Output, Value};
use crate::reasons::{Code, InPlaceCode, KeepReason};
use crate::reinplace::{self, Verdict};
use crate::text;

create_exception!(_core, CoreError, PyValueError, "An input that the core refuses; `args` is (message, code).");

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match error {
            // Python has exceptions of its own for what the system says.
            Error::Io { kind, message } => io::Error::new(kind, message).into(),
            other => CoreError::new_err((other.to_string(), other.code())),
        }
    }
}

fn invalid(message: &str) -> Error {
    Error::InvalidProblem(message.into())
}

/// dtype, device, format, conj, neg, quantizer, sizes, strides
type LayoutTuple = (String, String, Option<String>, bool, bool, Option<String>, Vec<i64>, Vec<i64>);
/// code, message
type Remark = (&'static str, String);
/// code, blame, fact
type ReasonTuple = (&'static str, Option<u32>, String);
/// code, output, the other output, consumers
type FindingTuple = (&'static str, usize, Option<usize>, Vec<&'static str>);

#[pyclass(frozen, module = "mutcanon._core")]
struct Problem {
    inner: crate::Problem,
}

#[pymethods]
impl Problem {
    #[new]
    #[pyo3(signature = (symbols, layouts, values, outputs, *, operand_groups, written, read, opaque_writes, is_body, names))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        symbols: Vec<String>,
        layouts: Vec<LayoutTuple>,
        values: Vec<i64>,
        outputs: Vec<i64>,
        operand_groups: Vec<Vec<u32>>,
        written: Vec<u32>,
        read: Vec<u32>,
        opaque_writes: bool,
        is_body: bool,
        names: Vec<String>,
    ) -> PyResult<Self> {
        let (values, kinds) = read_values(&values)?;
        let (outputs, namesakes) = read_outputs(&outputs)?;
        let mut inner = crate::Problem {
            symbols,
            layouts: layouts.into_iter().map(layout).collect(),
            values,
            kinds,
            outputs,
            namesakes,
            operand_groups: operand_groups.into_iter().map(|g| g.into_iter().map(ValueId).collect()).collect(),
            written: written.into_iter().map(ValueId).collect(),
            read: read.into_iter().map(ValueId).collect(),
            opaque_writes,
            is_body,
            ..crate::Problem::default()
        };
        if !names.is_empty() && names.len() != inner.values.len() {
            return Err(invalid("as many names as values are needed").into());
        }
        for (value, name) in inner.values.iter_mut().zip(names) {
            value.name = name;
        }
        inner.validate()?;
        Ok(Problem { inner })
    }

    /// The same problem with more proved equalities.
    fn with_equalities(&self, pairs: Vec<(i64, i64)>) -> PyResult<Self> {
        let mut inner = self.inner.clone();
        for (a, b) in pairs {
            let (a, b) = (dim(a), dim(b));
            for d in [a, b] {
                if matches!(d, Dim::Symbol(s) if s.index() >= inner.symbols.len()) {
                    return Err(invalid("an unknown symbol in an equality").into());
                }
            }
            inner.equalities.insert(a, b);
        }
        Ok(Problem { inner })
    }

    fn plan(&self, py: Python<'_>, form: &str) -> PyResult<Plan> {
        let form = read_form(form)?;
        Ok(Plan { inner: py.detach(|| crate::plan(&self.inner, form)) })
    }

    /// What stock consumers get wrong: code, output, the other output, consumers.
    fn findings(&self, py: Python<'_>) -> Vec<FindingTuple> {
        let found = py.detach(|| findings::find(&self.inner));
        let consumers = |f: &findings::Finding| f.consumers.iter().map(|c| c.as_str()).collect();
        found.iter().map(|f| (f.code.as_str(), f.output, f.other, consumers(f))).collect()
    }

    fn text(&self) -> String {
        text::print(&self.inner)
    }

    fn plan_text(&self, form: &str) -> PyResult<String> {
        Ok(text::print_plan(&self.inner, &crate::plan(&self.inner, read_form(form)?)))
    }
}

#[pyclass(frozen, module = "mutcanon._core")]
struct Plan {
    inner: crate::Plan,
}

#[pymethods]
impl Plan {
    #[getter]
    fn changes_nothing(&self) -> bool {
        self.inner.changes_nothing()
    }

    /// Collapsed copies and, at the same positions, what their readers read instead.
    #[getter]
    fn collapsed(&self) -> (Vec<u32>, Vec<u32>) {
        let pairs = self.inner.decisions.iter().filter_map(|(copy, d)| match d {
            Decision::Collapse(base) => Some((copy.0, base.0)),
            Decision::Keep(_) => None,
        });
        pairs.unzip()
    }

    #[getter]
    fn kept(&self) -> Vec<(u32, ReasonTuple)> {
        let pairs = self.inner.decisions.iter().filter_map(|(copy, d)| match d {
            Decision::Collapse(_) => None,
            Decision::Keep(r) => Some((copy.0, reason(r))),
        });
        pairs.collect()
    }

    #[getter]
    fn inserts(&self) -> Vec<(usize, u32, ReasonTuple)> {
        self.inner.inserts.iter().map(|i| (i.output, i.value.0, reason(&i.reason))).collect()
    }

    #[getter]
    fn order(&self) -> Option<Vec<usize>> {
        self.inner.order.clone()
    }

    /// `(is_save, output)` for each step.
    #[getter]
    fn write_backs(&self) -> Vec<(bool, usize)> {
        let steps = self.inner.write_backs.iter().map(|step| match *step {
            Step::Save(output) => (true, output),
            Step::Write(output) => (false, output),
        });
        steps.collect()
    }

    #[getter]
    fn hazards(&self) -> Vec<(usize, usize)> {
        self.inner.hazards.clone()
    }

    #[getter]
    fn queries(&self) -> Vec<(i64, i64)> {
        self.inner.queries.iter().map(|&(a, b)| (undim(a), undim(b))).collect()
    }
}

fn reason(r: &KeepReason) -> ReasonTuple {
    (r.code.as_str(), r.blame.map(|b| b.0), r.fact.clone())
}

fn read_form(form: &str) -> Result<Form, Error> {
    [Form::Minimal, Form::Portable]
        .into_iter()
        .find(|f| f.as_str() == form)
        .ok_or_else(|| invalid("the form is neither minimal nor portable"))
}

/// Numbers stand for themselves; `-1 - i` stands for symbol i.
fn dim(code: i64) -> Dim {
    match u32::try_from(-1 - code) {
        Ok(symbol) if code < 0 => Dim::Symbol(SymbolId(symbol)),
        _ => Dim::Int(code),
    }
}

fn undim(dim: Dim) -> i64 {
    match dim {
        Dim::Int(n) => n,
        Dim::Symbol(s) => -1 - i64::from(s.0),
    }
}

fn layout((dtype, device, format, conj, neg, quantizer, sizes, strides): LayoutTuple) -> Layout {
    let format = match format {
        None => Format::Unknown,
        Some(f) if f == "strided" => Format::Strided,
        Some(f) => Format::Other(f),
    };
    let dims = |codes: Vec<i64>| codes.into_iter().map(dim).collect();
    Layout { dtype, device, format, conj, neg, quantizer, sizes: dims(sizes), strides: dims(strides) }
}

#[pyclass(frozen, module = "mutcanon._core")]
struct Flow {
    inner: crate::flow::Flow,
}

#[pymethods]
impl Flow {
    #[new]
    fn new(
        nodes: Vec<i64>,
        outputs: Vec<i64>,
        candidates: Vec<i64>,
        identities: Vec<u32>,
        names: Vec<String>,
    ) -> PyResult<Self> {
        let inner = crate::flow::Flow {
            nodes: read_nodes(&nodes, names)?,
            outputs: read_outputs(&outputs)?.0,
            candidates: read_candidates(&candidates)?,
            identities: identities.into_iter().map(ValueId).collect(),
        };
        inner.validate()?;
        Ok(Flow { inner })
    }

    /// What becomes of each candidate, as (code, blame), the write-back, as (before, is a save, output), and whether
    /// each identity is left out.
    #[allow(clippy::type_complexity)]
    fn schedule(&self, py: Python<'_>) -> (Vec<(&'static str, Option<u32>)>, Vec<(usize, bool, usize)>, Vec<bool>) {
        let schedule = py.detach(|| reinplace::schedule(&self.inner));
        let verdicts = schedule.verdicts.iter().map(|v| match v {
            Verdict::InPlace => ("in_place", None),
            Verdict::Superseded => ("superseded", None),
            Verdict::Refused(r) => (r.code.as_str(), r.blame.map(|b| b.0)),
        });
        let steps = schedule.steps.iter().map(|p| match p.step {
            Step::Save(output) => (p.before, true, output),
            Step::Write(output) => (p.before, false, output),
        });
        (verdicts.collect(), steps.collect(), schedule.left_out.clone())
    }

    fn text(&self) -> String {
        flow_text::print(&self.inner)
    }
}

/// Walks a flat list of integers.
struct Reader<'a> {
    rest: std::slice::Iter<'a, i64>,
}

impl Reader<'_> {
    fn id(&mut self) -> Result<u32, Error> {
        let code = self.rest.next().ok_or_else(|| invalid("the list ends early"))?;
        u32::try_from(*code).map_err(|_| invalid("a number is no identifier"))
    }

    fn value(&mut self) -> Result<ValueId, Error> {
        self.id().map(ValueId)
    }

    /// A count and as many values.
    fn values(&mut self) -> Result<Vec<ValueId>, Error> {
        let count = self.id()?;
        (0..count).map(|_| self.value()).collect()
    }

    fn is_done(&self) -> bool {
        self.rest.len() == 0
    }
}

/// Each value is its kind, its layout, what it keeps the representation of (plus one, or 0), and its operands.
fn read_values(codes: &[i64]) -> Result<(Vec<Value>, HashMap<ValueId, InputKind>), Error> {
    let mut kinds = HashMap::new();
    let mut reader = Reader { rest: codes.iter() };
    let mut values = Vec::new();
    while !reader.is_done() {
        let kind = reader.id()?;
        let layout = LayoutId(reader.id()?);
        let keeps_representation_of = reader.id()?.checked_sub(1).map(ValueId);
        let def = match kind {
            0 | 5..=7 => Def::Placeholder,
            1 => Def::Fresh,
            2 => Def::Alias(reader.values()?),
            3 | 4 => Def::Copy { destination: reader.value()?, source: reader.value()?, non_blocking: kind == 4 },
            _ => return Err(invalid("an unknown kind of value")),
        };
        if let 5..=7 = kind {
            kinds.insert(ValueId::new(values.len()), InputKind::ALL[kind as usize - 5]);
        }
        values.push(Value { name: String::new(), layout, def, keeps_representation_of });
    }
    Ok((values, kinds))
}

/// Each node is its kind, what it aliases (kind 2), what it reads and what it writes.
fn read_nodes(codes: &[i64], names: Vec<String>) -> Result<Vec<Node>, Error> {
    let mut reader = Reader { rest: codes.iter() };
    let mut nodes = Vec::new();
    for name in names {
        let storage = match reader.id()? {
            0 => Storage::Placeholder,
            1 => Storage::Fresh,
            2 => Storage::Alias(reader.values()?),
            _ => return Err(invalid("an unknown kind of node")),
        };
        nodes.push(Node { name, storage, reads: reader.values()?, writes: reader.values()? });
    }
    if reader.is_done() { Ok(nodes) } else { Err(invalid("as many names as nodes are needed")) }
}

/// Each candidate is its node, its result, what it writes over, and its operands.
fn read_candidates(codes: &[i64]) -> Result<Vec<Candidate>, Error> {
    let mut reader = Reader { rest: codes.iter() };
    let mut candidates = Vec::new();
    while !reader.is_done() {
        let (node, result, over) = (reader.value()?, reader.value()?, reader.value()?);
        candidates.push(Candidate { node, result, over, operands: reader.values()? });
    }
    Ok(candidates)
}

/// Each output is its kind and its values: 0, nothing; 1, user output; 2 to 5, target and value, of which 3 and 5 are
/// pinned. Those of kinds 4 and 5, the namesakes, are returned too.
fn read_outputs(codes: &[i64]) -> Result<(Vec<Output>, Vec<usize>), Error> {
    let mut reader = Reader { rest: codes.iter() };
    let (mut outputs, mut namesakes) = (Vec::new(), Vec::new());
    while !reader.is_done() {
        outputs.push(match reader.id()? {
            0 => Output::Other,
            1 => Output::User(reader.value()?),
            kind @ 2..=5 => {
                if kind > 3 {
                    namesakes.push(outputs.len());
                }
                Output::Mutation { target: reader.value()?, value: reader.value()?, pinned: kind % 2 == 1 }
            }
            _ => return Err(invalid("an unknown kind of output")),
        });
    }
    Ok((outputs, namesakes))
}

/// The reasons for which a copy stays: code, section of the semantics, sentence.
#[pyfunction]
fn reasons() -> Vec<(&'static str, &'static str, &'static str)> {
    Code::ALL.iter().map(|c| (c.as_str(), c.section(), c.sentence())).collect()
}

/// The reasons for which a node is not computed in place: code, section of the semantics, sentence.
#[pyfunction]
fn in_place_reasons() -> Vec<(&'static str, &'static str, &'static str)> {
    InPlaceCode::ALL.iter().map(|c| (c.as_str(), c.section(), c.sentence())).collect()
}

/// What can be found wrong: code, sentence, advice.
#[pyfunction]
fn finding_codes() -> Vec<(&'static str, &'static str, &'static str)> {
    FindingCode::ALL.iter().map(|c| (c.as_str(), c.sentence(), c.advice())).collect()
}

/// The plan of a problem in textual form, as text.
#[pyfunction]
fn plan_text(problem: &str, form: &str) -> PyResult<String> {
    let inner = text::parse(problem)?;
    Problem { inner }.plan_text(form)
}

/// What stock consumers get wrong in a problem in textual form, as text.
#[pyfunction]
fn findings_text(problem: &str) -> PyResult<String> {
    Ok(text::print_findings(&findings::find(&text::parse(problem)?)))
}

/// What the independent checker says of a case in textual form: objections and warnings, each `(code, message)`.
#[pyfunction]
#[pyo3(name = "check")]
fn check_case(py: Python<'_>, case: &str) -> PyResult<(Vec<Remark>, Vec<Remark>)> {
    let verdict = py.detach(|| check::check(&check::text::parse(case)?))?;
    let remarks = |list: Vec<check::Objection>| list.into_iter().map(|o| (o.code, o.message)).collect();
    Ok((remarks(verdict.objections), remarks(verdict.warnings)))
}

#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("CoreError", module.py().get_type::<CoreError>())?;
    module.add_class::<Problem>()?;
    module.add_class::<Plan>()?;
    module.add_class::<Flow>()?;
    module.add_function(wrap_pyfunction!(reasons, module)?)?;
    module.add_function(wrap_pyfunction!(in_place_reasons, module)?)?;
    module.add_function(wrap_pyfunction!(check_case, module)?)?;
    module.add_function(wrap_pyfunction!(finding_codes, module)?)?;
    module.add_function(wrap_pyfunction!(plan_text, module)?)?;
    module.add_function(wrap_pyfunction!(findings_text, module)?)?;
    module.add_function(wrap_pyfunction!(archive::analyze_archive, module)?)?;
    module.add_function(wrap_pyfunction!(archive::rewrite_archive, module)?)?;
    module.add_function(wrap_pyfunction!(archive::verify_archive, module)?)?;
    module.add_function(wrap_pyfunction!(archive::refusals, module)?)
}
