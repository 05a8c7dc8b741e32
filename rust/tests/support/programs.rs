//! From a problem and a plan to the two programs that the checker compares.
//!
//! The planner sees an extract of a program; here is a program that the extract may have come from. Values that the
//! planner knows to be fresh become operators of their own, every copy has a reader whose result goes to the caller,
//! and what is written in place is written at the end, before anything is returned. The plan is carried out as the
//! front ends do it.

use mutcanon::check::program::{
    Arg, Case, Consumer, Dim, Graph, Node, Op, Output, Results, Role, Share, Step, Tensor, Text, Texts, Type, Write,
};
use mutcanon::check::{Verdict, check};
use mutcanon::ids::ValueId;
use mutcanon::layout::{self, Format, Layout};
use mutcanon::parallel_copy;
use mutcanon::plan::{Decision, Form, Plan};
use mutcanon::problem::{self, Def, InputKind, Problem};

/// What the checker says for each consumer that the plan's form is for; the first case that it objects to.
pub fn objection(problem: &Problem, plan: &Plan) -> Option<(Case, Verdict)> {
    let mut case = case(problem, plan);
    let consumers = match plan.form {
        Form::Minimal => {
            let steps = plan.write_backs.iter().map(|s| match *s {
                parallel_copy::Step::Save(i) => Step::Save(i),
                parallel_copy::Step::Write(i) => Step::Write(i),
            });
            vec![Consumer::Steps(steps.collect())]
        }
        Form::Portable => vec![Consumer::Torch, Consumer::ExecuTorch],
    };
    for consumer in consumers {
        case.consumer = consumer;
        let verdict = check(&case).expect("the case is well-formed");
        if !verdict.is_right() {
            return Some((case, verdict));
        }
    }
    None
}

/// The program before, and after the plan is carried out.
pub fn case(problem: &Problem, plan: &Plan) -> Case {
    let mut maker = Maker { problem, texts: Texts::default() };
    let types = problem.layouts.iter().map(|l| maker.kind(l)).collect();
    let equal = problem.equalities.sorted().iter().map(|&(a, b)| (maker.dim(a), maker.dim(b))).collect();
    let unchanged = Plan {
        form: plan.form,
        decisions: Vec::new(),
        inserts: Vec::new(),
        order: None,
        write_backs: Vec::new(),
        hazards: Vec::new(),
        queries: Vec::new(),
    };
    let (before, after) = (maker.program(&unchanged), maker.program(plan));
    Case { texts: maker.texts, types, equal, before, after, consumer: Consumer::Torch }
}

struct Maker<'p> {
    problem: &'p Problem,
    texts: Texts,
}

impl Maker<'_> {
    fn kind(&mut self, layout: &Layout) -> Type {
        match &layout.format {
            Format::Unknown => Type::Other(self.texts.intern("unknown")),
            Format::Other(what) => Type::Other(self.texts.intern(what)),
            Format::Strided => Type::Tensor(Tensor {
                dtype: self.texts.intern(&layout.dtype),
                device: self.texts.intern(&layout.device),
                sizes: layout.sizes.iter().map(|&d| self.dim(d)).collect(),
                strides: layout.strides.iter().map(|&d| self.dim(d)).collect(),
                conj: layout.conj,
                neg: layout.neg,
                quantizer: layout.quantizer.as_ref().map(|q| self.texts.intern(q)),
            }),
        }
    }

    fn dim(&mut self, dim: layout::Dim) -> Dim {
        match dim {
            layout::Dim::Int(n) => Dim::Number(n),
            layout::Dim::Symbol(s) => Dim::Symbol(self.texts.intern(&self.problem.symbols[s.index()])),
        }
    }

    fn input_kind(&self, value: ValueId) -> &'static str {
        let is_pinned = |o: &problem::Output| matches!(o, problem::Output::Mutation { target, pinned: true, .. } if *target == value);
        match self.problem.kinds.get(&value) {
            Some(InputKind::Other) => "parameter",
            Some(InputKind::UserInput) => "user_input",
            None if self.problem.outputs.iter().any(is_pinned) => "user_input",
            Some(InputKind::Buffer) | None => "buffer",
        }
    }

    fn node(&mut self, name: &str, op: Op, result: usize, args: &[usize]) -> Node {
        Node {
            name: self.texts.intern(name),
            op,
            results: Results::One(result),
            args: args.iter().map(|&n| Arg::Value(n)).collect(),
            shares: Vec::new(),
            writes: Vec::new(),
            keeps: None,
            impure: false,
        }
    }

    fn call(&mut self, name: &str, result: usize, args: &[usize]) -> Node {
        let op = Op::Call(self.texts.intern(name));
        self.node(name, op, result, args)
    }

    /// The graph with the plan carried out; a body is wrapped in a program that calls it.
    fn program(&mut self, plan: &Plan) -> Graph {
        let graph = self.graph(plan);
        if !self.problem.is_body {
            return graph;
        }
        let mut program = Graph::default();
        let operands: Vec<usize> =
            (0..self.problem.values.len()).filter(|&v| self.problem.values[v].def == Def::Placeholder).collect();
        for &v in &operands {
            let name = self.texts.intern(&format!("operand{v}"));
            let op = Op::Input(self.texts.intern("user_input"), name);
            let node = self.node(&format!("operand{v}"), op, self.problem.values[v].layout.index(), &[]);
            program.nodes.push(node);
        }
        let args: Vec<usize> = (0..operands.len()).collect();
        let mut call = self.call("loop", 0, &args);
        call.args.push(Arg::Body(Box::new(graph)));
        program.nodes.push(call);
        program.outputs.push(Output { role: Role::User, value: Arg::Value(operands.len()), named: None });
        program
    }

    fn graph(&mut self, plan: &Plan) -> Graph {
        let problem = self.problem;
        let mut graph = Graph::default();
        let mut base: Vec<usize> = (0..problem.values.len()).collect();
        for (copy, decision) in &plan.decisions {
            if let Decision::Collapse(value) = decision {
                base[copy.index()] = value.index();
            }
        }
        let mut of_value: Vec<usize> = Vec::new();
        for (i, value) in problem.values.iter().enumerate() {
            if base[i] != i {
                of_value.push(of_value[base[i]]);
                continue;
            }
            let node = self.value(i, value, &of_value);
            of_value.push(graph.nodes.len());
            graph.nodes.push(node);
        }
        self.rest(&mut graph, &of_value);
        self.outputs(&mut graph, &of_value, plan);
        graph
    }

    fn value(&mut self, i: usize, value: &problem::Value, of_value: &[usize]) -> Node {
        let (name, result) = (format!("v{i}"), value.layout.index());
        let at = |v: &ValueId| of_value[v.index()];
        let kept = value.keeps_representation_of.as_ref().map(at);
        let mut node = match &value.def {
            Def::Placeholder => {
                let kind = if self.problem.is_body { "operand" } else { self.input_kind(ValueId::new(i)) };
                let op = Op::Input(self.texts.intern(kind), self.texts.intern(&name));
                self.node(&name, op, result, &[])
            }
            Def::Fresh => self.call(&name, result, &kept.into_iter().collect::<Vec<_>>()),
            Def::Alias(of) => {
                let args: Vec<usize> = of.iter().map(at).collect();
                let share = match args[..] {
                    [one] => Share::View(one),
                    _ => Share::May(args.clone()),
                };
                let mut node = self.call("alias", result, &args);
                node.name = self.texts.intern(&name);
                node.shares.push((0, share));
                node
            }
            Def::Copy { destination, source, non_blocking: false } => {
                self.node(&name, Op::Copy, result, &[at(destination), at(source)])
            }
            Def::Copy { destination, source, .. } => self.call(&name, result, &[at(destination), at(source)]),
        };
        node.keeps = kept;
        node
    }

    /// What the planner does not see, or sees in part: readers of copies, writes in place, control flow.
    fn rest(&mut self, graph: &mut Graph, of_value: &[usize]) {
        let problem = self.problem;
        let copies: Vec<usize> = problem.copies().map(|c| of_value[c.index()]).collect();
        let reader = self.call("read", 0, &copies);
        graph.nodes.push(reader);
        let reader = graph.nodes.len() - 1;
        graph.outputs.push(Output { role: Role::User, value: Arg::Value(reader), named: None });
        for (g, group) in problem.operand_groups.iter().enumerate() {
            let args: Vec<usize> = group.iter().map(|v| of_value[v.index()]).collect();
            let mut call = self.call(&format!("loop{g}"), 0, &args);
            call.args.push(Arg::Body(Box::default()));
            graph.nodes.push(call);
        }
        for (w, &value) in problem.written.iter().enumerate() {
            let node = of_value[value.index()];
            let mut write = self.call(&format!("write{w}"), 0, &[node]);
            write.writes.push(Write { value: node, result: None });
            graph.nodes.push(write);
        }
        if problem.opaque_writes {
            let operand = self.node("operand", Op::Input(Text(0), Text(0)), 0, &[]);
            let mut write = self.call("write", 0, &[0]);
            write.writes.push(Write { value: 0, result: None });
            let body = Graph { nodes: vec![operand, write], outputs: Vec::new() };
            let first: Vec<usize> = problem.values.iter().take(1).map(|_| of_value[0]).collect();
            let mut call = self.call("opaque", 0, &first);
            call.args.push(Arg::Body(Box::new(body)));
            graph.nodes.push(call);
        }
    }

    fn outputs(&mut self, graph: &mut Graph, of_value: &[usize], plan: &Plan) {
        let problem = self.problem;
        let mut outputs = Vec::new();
        for (i, output) in problem.outputs.iter().enumerate() {
            let (role, value, target) = match *output {
                problem::Output::Mutation { target, value, .. } => {
                    let kind = self.texts.intern(self.input_kind(target));
                    let name = self.texts.intern(&format!("v{}", target.0));
                    (Role::Mutation(kind, name), value, Some(target))
                }
                problem::Output::User(value) => (Role::User, value, None),
                problem::Output::Other => {
                    let none = Arg::Text(self.texts.intern("none"));
                    outputs.push(Output { role: Role::Other, value: none, named: None });
                    continue;
                }
            };
            let mut node = of_value[value.index()];
            if let Some(insert) = plan.inserts.iter().find(|insert| insert.output == i) {
                let source = insert.value;
                let destination = target.unwrap_or(source);
                let args = [of_value[destination.index()], of_value[source.index()]];
                let result = problem.values[destination.index()].layout.index();
                let copy = self.node(&format!("insert{i}"), Op::Copy, result, &args);
                node = graph.nodes.len();
                graph.nodes.push(copy);
            }
            outputs.push(Output { role, value: Arg::Value(node), named: None });
        }
        if let Some(order) = &plan.order {
            let moved: Vec<Output> = order.iter().map(|&o| outputs[o].clone()).collect();
            let mut positions = order.clone();
            positions.sort_unstable();
            for (position, output) in positions.into_iter().zip(moved) {
                outputs[position] = output;
            }
        }
        outputs.append(&mut graph.outputs);
        graph.outputs = outputs;
    }
}
