//! Small problems, all of them, and an interpreter of parallel assignment that knows nothing of the planner.
//!
//! A problem is up to four targets, an input that is not mutated and one computed value. Each target, and optionally a
//! user output or one for each target, takes one of these, bare or through views and copies. The interpreter gives every storage a number,
//! carries out the write-backs one after another, and compares with what parallel assignment says.

use mutcanon::Form;
use mutcanon::ids::{LayoutId, ValueId};
use mutcanon::layout::{Dim, Format, Layout};
use mutcanon::parallel_copy::Step;
use mutcanon::plan::{Decision, Plan};
use mutcanon::problem::{Def, Output, Problem, Value};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wrap {
    Bare,
    View,
    OneCopy,
    CopyOfCopy,
    CopyOfView,
    ViewOfCopy,
}
pub use Wrap::{Bare, CopyOfCopy, CopyOfView, OneCopy, View, ViewOfCopy};

#[derive(Clone, Copy, Debug)]
pub enum User {
    None,
    SameAsTarget(usize),
    /// One for each target.
    SameAsTargets,
    Own(usize, Wrap),
}

#[derive(Debug)]
pub struct Case {
    pub targets: usize,
    /// For each target: the base (a target, the input, or the computed value) and how it is wrapped.
    pub picks: Vec<(usize, Wrap)>,
    pub user: User,
    pub pinned: bool,
}

struct Builder {
    problem: Problem,
}

impl Builder {
    fn push(&mut self, def: Def) -> ValueId {
        let id = ValueId::new(self.problem.values.len());
        self.problem.values.push(Value {
            name: String::new(),
            layout: LayoutId(0),
            def,
            keeps_representation_of: None,
        });
        id
    }

    fn copy(&mut self, source: ValueId) -> ValueId {
        self.push(Def::Copy { destination: ValueId(0), source, non_blocking: false })
    }

    fn wrap(&mut self, base: usize, wrap: Wrap) -> ValueId {
        let base = ValueId::new(base);
        match wrap {
            Bare => base,
            View => self.push(Def::Alias(vec![base])),
            OneCopy => self.copy(base),
            CopyOfCopy => {
                let inner = self.copy(base);
                self.copy(inner)
            }
            CopyOfView => {
                let inner = self.push(Def::Alias(vec![base]));
                self.copy(inner)
            }
            ViewOfCopy => {
                let inner = self.copy(base);
                self.push(Def::Alias(vec![inner]))
            }
        }
    }
}

pub fn build(case: &Case) -> Problem {
    let layout = Layout {
        dtype: "f".into(),
        device: "cpu".into(),
        format: Format::Strided,
        sizes: vec![Dim::Int(2)],
        strides: vec![Dim::Int(1)],
        ..Layout::unknown()
    };
    let mut b = Builder { problem: Problem { layouts: vec![layout], ..Problem::default() } };
    for _ in 0..=case.targets {
        b.push(Def::Placeholder);
    }
    b.push(Def::Fresh);
    let values: Vec<_> = case.picks.iter().map(|&(base, wrap)| b.wrap(base, wrap)).collect();
    for (i, &value) in values.iter().enumerate() {
        let target = ValueId::new(i);
        b.problem.outputs.push(Output::Mutation { target, value, pinned: case.pinned });
    }
    match case.user {
        User::None => {}
        User::SameAsTarget(i) => b.problem.outputs.push(Output::User(values[i])),
        User::SameAsTargets => b.problem.outputs.extend(values.iter().copied().map(Output::User)),
        User::Own(base, wrap) => {
            let value = b.wrap(base, wrap);
            b.problem.outputs.push(Output::User(value));
        }
    }
    b.problem.validate().unwrap();
    b.problem
}

/// A choice, made by the planner or by brute force: what collapses, what is inserted, the order and the steps.
#[derive(Debug)]
pub struct Choice {
    pub collapsed: Vec<bool>,
    pub inserted: Vec<bool>,
    pub order: Vec<usize>,
    pub steps: Vec<Step>,
}

impl Choice {
    pub fn of(problem: &Problem, plan: &Plan) -> Self {
        let mutations = mutation_count(problem);
        let mut collapsed = vec![false; problem.values.len()];
        for (copy, decision) in &plan.decisions {
            collapsed[copy.index()] = matches!(decision, Decision::Collapse(_));
        }
        let mut inserted = vec![false; problem.outputs.len()];
        for insert in &plan.inserts {
            inserted[insert.output] = true;
        }
        let order = plan.order.clone().unwrap_or_else(|| (0..mutations).collect());
        Choice { collapsed, inserted, order, steps: plan.write_backs.clone() }
    }

    pub fn cost(&self, problem: &Problem) -> usize {
        let kept = (0..problem.values.len()).filter(|&v| is_copy(problem, v) && !self.collapsed[v]).count();
        let saves = self.steps.iter().filter(|s| matches!(s, Step::Save(_))).count();
        kept + saves + self.inserted.iter().filter(|&&i| i).count()
    }
}

pub fn is_copy(problem: &Problem, v: usize) -> bool {
    matches!(problem.values[v].def, Def::Copy { .. })
}

pub fn mutation_count(problem: &Problem) -> usize {
    problem.outputs.iter().filter(|o| matches!(o, Output::Mutation { .. })).count()
}

/// Where a value lives: a cell, seen through so many views. Each view shows something else than the cell holds.
type Place = (usize, usize);

/// What a cell holds: which storage the data came from, and through how many views it was taken.
type Data = (usize, usize);

/// For each value, the node that its readers read and its place.
fn evaluate(problem: &Problem, collapsed: &[bool]) -> (Vec<usize>, Vec<Place>) {
    let mut node: Vec<usize> = Vec::new();
    let mut place: Vec<Place> = Vec::new();
    for (i, value) in problem.values.iter().enumerate() {
        let (n, p) = match &value.def {
            Def::Alias(of) => {
                let (cell, views) = place[of[0].index()];
                (i, (cell, views + 1))
            }
            Def::Copy { source, .. } if collapsed[i] => (node[source.index()], place[source.index()]),
            _ => (i, (i, 0)),
        };
        node.push(n);
        place.push(p);
    }
    (node, place)
}

/// What each value is by parallel assignment.
fn contents(problem: &Problem) -> Vec<Data> {
    let mut data: Vec<Data> = Vec::new();
    for (i, value) in problem.values.iter().enumerate() {
        data.push(match &value.def {
            Def::Placeholder | Def::Fresh => (i, 0),
            Def::Alias(of) => (data[of[0].index()].0, data[of[0].index()].1 + 1),
            Def::Copy { source, .. } => data[source.index()],
        });
    }
    data
}

/// Whether the choice keeps the contract; `Err` says what it breaks.
pub fn check(problem: &Problem, choice: &Choice, form: Form) -> Result<(), String> {
    let n = mutation_count(problem);
    let (node, place) = evaluate(problem, &choice.collapsed);
    let (_, place_before) = evaluate(problem, &vec![false; problem.values.len()]);
    let data = contents(problem);
    let size = problem.values.len();
    // Cells: one for each value, one for each inserted copy, one for each temporary.
    let inserted_cell = |output: usize| size + output;
    let temporary = |output: usize| size + problem.outputs.len() + output;
    let mut memory: Vec<Data> = vec![(usize::MAX, 0); size + 2 * problem.outputs.len()];
    for v in (0..size).filter(|&v| place[v] == (v, 0)) {
        memory[v] = data[v];
    }
    let mut slots = Vec::new();
    for (i, output) in problem.outputs.iter().enumerate() {
        let (Output::Mutation { value, .. } | Output::User(value)) = *output else { unreachable!() };
        let value = value.index();
        if choice.inserted[i] {
            memory[inserted_cell(i)] = data[value];
            slots.push((size + i, (inserted_cell(i), 0)));
        } else {
            slots.push((node[value], place[value]));
        }
    }
    for i in 0..n {
        if (0..i).any(|j| slots[i].0 == slots[j].0) {
            return Err(format!("outputs share the node of output {i}"));
        }
        let is_other_placeholder = slots[i].0 < size && matches!(problem.values[slots[i].0].def, Def::Placeholder);
        if form == Form::Portable && is_other_placeholder && slots[i].0 != i {
            return Err(format!("output {i} is a placeholder"));
        }
    }
    for u in n..problem.outputs.len() {
        let Output::User(value) = problem.outputs[u] else { unreachable!() };
        let (value_node, (value_cell, _)) = slots[u];
        for (i, slot) in slots[..n].iter().enumerate() {
            let Output::Mutation { value: m, .. } = problem.outputs[i] else { unreachable!() };
            // Of an identity the caller gets the target either way.
            if form == Form::Portable && slot.0 == value_node && m != value && value_node != i {
                return Err("a user output became a mutation's value".into());
            }
        }
        let is_input = value_cell < size && matches!(problem.values[value_cell].def, Def::Placeholder);
        if is_input && place_before[value.index()].0 != value_cell {
            return Err("a user output newly aliases an input".into());
        }
    }
    users_share_no_more(problem, &slots, &place_before)?;
    if form == Form::Portable {
        let mut pinned = Vec::new();
        for &o in &choice.order {
            if matches!(problem.outputs[o], Output::Mutation { pinned: true, .. }) {
                pinned.push(o);
            }
        }
        if !pinned.is_sorted() {
            return Err("a pinned output moved".into());
        }
        // ExecuTorch returns what it finds in place after what it writes.
        if !choice.order.is_sorted_by_key(|&o| slots[o].0 == o) {
            return Err("an output in place stands before one that is written".into());
        }
    }
    // Sequential write-back, as the consumer does it. Stock consumers know no temporaries, and copying a tensor onto
    // another view of itself is undefined, so both are wrong there.
    let mut source: Vec<Place> = (0..n).map(|i| slots[i].1).collect();
    let steps: Vec<Step> = match form {
        Form::Portable => choice.order.iter().map(|&o| Step::Write(o)).collect(),
        Form::Minimal => choice.steps.clone(),
    };
    for step in &steps {
        match *step {
            Step::Save(i) => {
                memory[temporary(i)] = read(&memory, source[i]);
                source[i] = (temporary(i), 0);
            }
            Step::Write(i) if slots[i].0 == i => {}
            Step::Write(i) => {
                if source[i].0 == i {
                    return Err(format!("output {i} is copied onto itself"));
                }
                memory[i] = read(&memory, source[i]);
            }
        }
    }
    let writes = steps.iter().filter(|s| matches!(s, Step::Write(_))).count();
    if writes != n {
        return Err(format!("{writes} writes for {n} targets"));
    }
    for (i, output) in problem.outputs.iter().enumerate() {
        match *output {
            Output::Mutation { target, value, .. } if memory[target.index()] != data[value.index()] => {
                return Err(format!("target {i} is wrong"));
            }
            Output::User(value) if read(&memory, slots[i].1) != data[value.index()] => {
                return Err(format!("user output {i} is wrong"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Two user outputs may share storage only if they did before.
fn users_share_no_more(problem: &Problem, slots: &[(usize, Place)], before: &[Place]) -> Result<(), String> {
    let mut users = Vec::new();
    for (output, &(_, (cell, _))) in problem.outputs.iter().zip(slots) {
        let Output::User(value) = *output else { continue };
        let old = before[value.index()].0;
        if users.iter().any(|&(c, o)| c == cell && o != old) {
            return Err("two user outputs newly share storage".into());
        }
        users.push((cell, old));
    }
    Ok(())
}

fn read(memory: &[Data], (cell, views): Place) -> Data {
    (memory[cell].0, memory[cell].1 + views)
}

/// Calls `visit` with every case of `targets` targets.
pub fn each_case(targets: usize, wraps: &[Wrap], users: &[User], mut visit: impl FnMut(&Case)) {
    let options: Vec<(usize, Wrap)> =
        (0..targets + 2).flat_map(|base| wraps.iter().map(move |&wrap| (base, wrap))).collect();
    let total = options.len().pow(u32::try_from(targets).unwrap());
    for pinned in [false, true] {
        for &user in users {
            for code in 0..total {
                let mut rest = code;
                let picks = (0..targets)
                    .map(|_| {
                        let pick = options[rest % options.len()];
                        rest /= options.len();
                        pick
                    })
                    .collect();
                visit(&Case { targets, picks, user, pinned });
            }
        }
    }
}

pub fn users(targets: usize, wraps: &[Wrap]) -> Vec<User> {
    let mut users = vec![User::None];
    users.extend((0..targets).map(User::SameAsTarget));
    users.push(User::SameAsTargets);
    users.extend((0..targets + 2).flat_map(|base| wraps.iter().map(move |&wrap| User::Own(base, wrap))));
    users
}

pub const ALL: [Wrap; 6] = [Bare, View, OneCopy, CopyOfCopy, CopyOfView, ViewOfCopy];
