//! Cases as text: how they reach us from Python, what a bug report holds and what the tests are written in.
//!
//! One statement a line; words are separated by spaces and quoted where they contain any:
//!
//! ```text
//! equal s0 4
//! type T0 = float32 cpu [ 2 s0 ] [ s0 1 ]       # then conj, neg, quantizer NAME
//! type T1 = other int
//! consumer torch                                # or executorch, nobody, or: steps save 0 write 1 write 0
//! before
//! %b : T0 = input buffer b
//! %v : T0 = call aten::view.default %b [ 2 -1 ] ; view 0 %b
//! %a : T0 = call aten::add.Tensor %b 1 ; same 0 %b ; writes %b 0
//! %s : ( T0 T0 ) = call aten::split.Tensor %b 2 ; may 0 %b ; may 1 %b
//! %t : T0 = item 1 %s
//! %r : T0 = call aten::rand.default [ 2 4 ] ; impure
//! %q : T0 = call aten::index_put.default %b %i %x ; keeps %b
//! body f
//!   %x : T0 = input operand x
//!   output %x
//! end
//! %w : ( T0 ) = call cond %p @f @f [ %b ]
//! %c : T0 = copy %b %v
//! mutate buffer b <- %c as c                    # the name in the signature
//! output %c as c
//! other %t
//! after
//! ...
//! ```

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

use crate::check::program::{
    Arg, Case, Consumer, Dim, Graph, Node, Op, Output, Results, Role, Share, Step, Tensor, Text, Texts, Type, Write,
};
use crate::error::Error;

/// Bodies may stand in bodies, but not without end.
const MAX_DEPTH: usize = 32;

type Parsed<T> = Result<T, String>;

/// Reads a case.
pub fn parse(text: &str) -> Result<Case, Error> {
    let mut parser = Parser::default();
    for (i, line) in text.lines().enumerate() {
        parser.line(line).map_err(|message| Error::Syntax { line: i + 1, message })?;
    }
    let last = text.lines().count();
    parser.finish().map_err(|message| Error::Syntax { line: last, message })
}

#[derive(Default)]
struct Parser {
    texts: Texts,
    types: Vec<Type>,
    equal: Vec<(Dim, Dim)>,
    consumer: Option<Consumer>,
    done: Vec<Graph>,
    /// The graph that is being read, and those around it.
    open: Vec<Scope>,
}

#[derive(Default)]
struct Scope {
    name: String,
    graph: Graph,
    values: HashMap<String, usize>,
    bodies: HashMap<String, Graph>,
}

impl Parser {
    fn line(&mut self, line: &str) -> Parsed<()> {
        let tokens = tokens(line)?;
        let words: Vec<&str> = tokens.iter().map(AsRef::as_ref).collect();
        match words[..] {
            [] => {}
            ["equal", a, b] => {
                let pair = (self.dim(a), self.dim(b));
                self.equal.push(pair);
            }
            ["type", name, "=", ref rest @ ..] => {
                if name.strip_prefix('T').and_then(|n| n.parse().ok()) != Some(self.types.len()) {
                    return Err(format!("expected the type T{}", self.types.len()));
                }
                let kind = self.kind(rest)?;
                self.types.push(kind);
            }
            ["consumer", ref rest @ ..] => self.consumer = Some(consumer(rest)?),
            ["before" | "after"] => {
                self.close()?;
                if self.done.len() != usize::from(words[0] == "after") {
                    return Err("expected one program before and one after".into());
                }
                self.open.push(Scope::default());
            }
            ["body", name] => {
                if self.open.is_empty() || self.open.len() > MAX_DEPTH {
                    return Err("a body in no program, or too deep in others".into());
                }
                self.open.push(Scope { name: name.to_owned(), ..Scope::default() });
            }
            ["end"] => {
                let scope = self.open.pop().ok_or("nothing to end")?;
                let around = self.open.last_mut().ok_or("nothing to end")?;
                around.bodies.insert(scope.name, scope.graph);
            }
            ["output", value, ref named @ ..] => self.output(Role::User, value, named)?,
            ["other", value, ref named @ ..] => self.output(Role::Other, value, named)?,
            ["mutate", kind, target, "<-", value, ref named @ ..] => {
                let role = Role::Mutation(self.text(kind), self.text(target));
                self.output(role, value, named)?;
            }
            [name, ":", ref rest @ ..] => self.node(name, rest)?,
            [word, ..] => return Err(format!("unknown statement `{word}`")),
        }
        Ok(())
    }

    fn finish(mut self) -> Parsed<Case> {
        self.close()?;
        let consumer = self.consumer.ok_or("no consumer")?;
        let [before, after] =
            <[Graph; 2]>::try_from(self.done).map_err(|_| "expected a program before and one after")?;
        Ok(Case { texts: self.texts, types: self.types, equal: self.equal, before, after, consumer })
    }

    fn close(&mut self) -> Parsed<()> {
        if self.open.len() > 1 {
            return Err("a body does not end".into());
        }
        self.done.extend(self.open.pop().map(|s| s.graph));
        Ok(())
    }

    /// Interns a word; what was quoted is marked by a backslash.
    fn text(&mut self, word: &str) -> Text {
        self.texts.intern(word.strip_prefix('\\').unwrap_or(word))
    }

    fn dim(&mut self, word: &str) -> Dim {
        word.parse().map_or_else(|_| Dim::Symbol(self.text(word)), Dim::Number)
    }

    fn kind(&mut self, words: &[&str]) -> Parsed<Type> {
        if let ["other", what] = words {
            return Ok(Type::Other(self.text(what)));
        }
        let [dtype, device, "[", rest @ ..] = words else { return Err("expected an element type and a device".into()) };
        let (dtype, device) = (self.text(dtype), self.text(device));
        let (sizes, rest) = self.dims(rest)?;
        let ["[", rest @ ..] = rest else { return Err("expected strides".into()) };
        let (strides, mut flags) = self.dims(rest)?;
        if sizes.len() != strides.len() {
            return Err(format!("{} sizes and {} strides", sizes.len(), strides.len()));
        }
        let mut tensor = Tensor { dtype, device, sizes, strides, conj: false, neg: false, quantizer: None };
        loop {
            flags = match flags {
                [] => return Ok(Type::Tensor(tensor)),
                ["conj", rest @ ..] => {
                    tensor.conj = true;
                    rest
                }
                ["neg", rest @ ..] => {
                    tensor.neg = true;
                    rest
                }
                ["quantizer", name, rest @ ..] => {
                    tensor.quantizer = Some(self.text(name));
                    rest
                }
                [flag, ..] => return Err(format!("unknown flag `{flag}`")),
            };
        }
    }

    fn dims<'a, 'b>(&mut self, words: &'a [&'b str]) -> Parsed<(Vec<Dim>, &'a [&'b str])> {
        let end = words.iter().position(|w| *w == "]").ok_or("expected `]`")?;
        Ok((words[..end].iter().map(|w| self.dim(w)).collect(), &words[end + 1..]))
    }

    fn output(&mut self, role: Role, value: &str, named: &[&str]) -> Parsed<()> {
        let named = match named {
            [] => None,
            ["as", name] => Some(self.text(name)),
            _ => return Err("expected `as` and a name".into()),
        };
        let value = self.arg(value)?;
        let graph = &mut self.open.last_mut().ok_or("an output of no program")?.graph;
        graph.outputs.push(Output { role, value, named });
        Ok(())
    }

    fn node(&mut self, name: &str, words: &[&str]) -> Parsed<()> {
        let equals = words.iter().position(|w| *w == "=").ok_or("expected `=`")?;
        let results = match words[..equals] {
            [one] => Results::One(self.type_number(one)?),
            ["(", ref many @ .., ")"] => {
                Results::Many(many.iter().map(|w| self.type_number(w)).collect::<Parsed<_>>()?)
            }
            _ => return Err("expected a type, or some in parentheses".into()),
        };
        let mut clauses = words[equals + 1..].split(|w| *w == ";");
        let call = clauses.next().unwrap_or_default();
        let (op, args) = match call {
            ["input", kind, target] => (Op::Input(self.text(kind), self.text(target)), &[][..]),
            ["copy", args @ ..] => (Op::Copy, args),
            ["item", k, args @ ..] => (Op::Item(number(k)?), args),
            ["call", op, args @ ..] => (Op::Call(self.text(op)), args),
            _ => return Err("expected input, copy, item or call".into()),
        };
        let args = args.iter().map(|w| self.arg(w)).collect::<Parsed<_>>()?;
        let name_text = self.text(name.strip_prefix('%').ok_or("a value's name begins with %")?);
        let mut node = Node {
            name: name_text,
            op,
            results,
            args,
            shares: Vec::new(),
            writes: Vec::new(),
            keeps: None,
            impure: false,
        };
        for clause in clauses {
            self.clause(&mut node, clause)?;
        }
        let count = match &node.results {
            Results::One(_) => 1,
            Results::Many(types) => types.len(),
        };
        let results = node.shares.iter().map(|s| s.0).chain(node.writes.iter().filter_map(|w| w.result));
        if results.into_iter().any(|k| k as usize >= count) {
            return Err("a result that there is not".into());
        }
        if matches!((&node.op, &node.results), (Op::Input(..) | Op::Copy, Results::Many(_))) {
            return Err("an input or a copy is one value".into());
        }
        let scope = self.open.last_mut().ok_or("a node of no program")?;
        scope.values.insert(name.to_owned(), scope.graph.nodes.len());
        scope.graph.nodes.push(node);
        Ok(())
    }

    fn clause(&mut self, node: &mut Node, words: &[&str]) -> Parsed<()> {
        match words {
            ["impure"] => node.impure = true,
            ["keeps", value] => node.keeps = Some(self.value(value)?),
            ["same", k, value] => node.shares.push((number(k)?, Share::Same(self.value(value)?))),
            ["view", k, value] => node.shares.push((number(k)?, Share::View(self.value(value)?))),
            ["may", k, values @ ..] => {
                let of = values.iter().map(|v| self.value(v)).collect::<Parsed<_>>()?;
                node.shares.push((number(k)?, Share::May(of)));
            }
            ["writes", value] => node.writes.push(Write { value: self.value(value)?, result: None }),
            ["writes", value, k] => {
                node.writes.push(Write { value: self.value(value)?, result: Some(number(k)?) });
            }
            _ => return Err(format!("unknown clause `{}`", words.join(" "))),
        }
        Ok(())
    }

    fn type_number(&self, word: &str) -> Parsed<usize> {
        let number = word.strip_prefix('T').and_then(|n| n.parse().ok());
        number.filter(|&n| n < self.types.len()).ok_or_else(|| format!("unknown type `{word}`"))
    }

    fn arg(&mut self, word: &str) -> Parsed<Arg> {
        match word.as_bytes().first() {
            Some(b'%') => self.value(word).map(Arg::Value),
            Some(b'@') => {
                let scope = self.open.last().ok_or("a body of no program")?;
                let body = scope.bodies.get(&word[1..]).ok_or_else(|| format!("unknown body `{word}`"))?;
                Ok(Arg::Body(Box::new(body.clone())))
            }
            _ => Ok(Arg::Text(self.text(word))),
        }
    }

    fn value(&self, word: &str) -> Parsed<usize> {
        let scope = self.open.last().ok_or("a value of no program")?;
        scope.values.get(word).copied().ok_or_else(|| format!("unknown value `{word}`"))
    }
}

fn number(word: &str) -> Parsed<u32> {
    word.parse().map_err(|_| format!("`{word}` is no number"))
}

fn consumer(words: &[&str]) -> Parsed<Consumer> {
    match words {
        ["torch"] => Ok(Consumer::Torch),
        ["executorch"] => Ok(Consumer::ExecuTorch),
        ["nobody"] => Ok(Consumer::Nobody),
        ["steps", rest @ ..] => {
            let step = |pair: &[&str]| match *pair {
                ["save", n] => Ok(Step::Save(number(n)? as usize)),
                ["write", n] => Ok(Step::Write(number(n)? as usize)),
                _ => Err("expected save or write and an output".to_owned()),
            };
            Ok(Consumer::Steps(rest.chunks(2).map(step).collect::<Parsed<_>>()?))
        }
        _ => Err("expected torch, executorch, nobody or steps".into()),
    }
}

/// The words of a line. A quoted one begins with a backslash, so that it is taken for a constant.
fn tokens(line: &str) -> Parsed<Vec<Cow<'_, str>>> {
    let mut found = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (word, after) = unquote(quoted)?;
            found.push(Cow::Owned(word));
            rest = after.trim_start();
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            found.push(Cow::Borrowed(&rest[..end]));
            rest = rest[end..].trim_start();
        }
    }
    Ok(found)
}

fn unquote(text: &str) -> Parsed<(String, &str)> {
    let mut word = String::from('\\');
    let mut chars = text.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Ok((word, &text[i + 1..])),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => word.push('\n'),
                Some('r') => word.push('\r'),
                Some(c @ ('"' | '\\')) => word.push(c),
                _ => return Err("an unknown escape".into()),
            },
            c => word.push(c),
        }
    }
    Err("a quoted word does not end".into())
}

/// Writes a case so that [`parse`] reads it back.
#[must_use]
pub fn print(case: &Case) -> String {
    let mut out = String::new();
    for (a, b) in &case.equal {
        let _ = writeln!(out, "equal {} {}", dim(case, *a), dim(case, *b));
    }
    for (i, kind) in case.types.iter().enumerate() {
        let _ = writeln!(out, "type T{i} = {}", type_text(case, kind));
    }
    let _ = writeln!(out, "consumer {}", consumer_text(&case.consumer));
    out.push_str("before\n");
    print_graph(case, &case.before, "", &mut out);
    out.push_str("after\n");
    print_graph(case, &case.after, "", &mut out);
    out
}

fn consumer_text(consumer: &Consumer) -> String {
    match consumer {
        Consumer::Torch => "torch".into(),
        Consumer::ExecuTorch => "executorch".into(),
        Consumer::Nobody => "nobody".into(),
        Consumer::Steps(steps) => steps.iter().fold("steps".into(), |mut text, step| {
            let _ = match step {
                Step::Save(n) => write!(text, " save {n}"),
                Step::Write(n) => write!(text, " write {n}"),
            };
            text
        }),
    }
}

/// A type as text.
#[must_use]
pub fn type_text(case: &Case, kind: &Type) -> String {
    let tensor = match kind {
        Type::Other(what) => return format!("other {}", word(case.texts.get(*what))),
        Type::Tensor(tensor) => tensor,
    };
    let dims = |dims: &[Dim]| dims.iter().fold(String::new(), |text, &d| text + &dim(case, d) + " ");
    let (sizes, strides) = (dims(&tensor.sizes), dims(&tensor.strides));
    let (dtype, device) = (word(case.texts.get(tensor.dtype)), word(case.texts.get(tensor.device)));
    let mut text = format!("{dtype} {device} [ {sizes}] [ {strides}]");
    if tensor.conj {
        text.push_str(" conj");
    }
    if tensor.neg {
        text.push_str(" neg");
    }
    if let Some(name) = tensor.quantizer {
        let _ = write!(text, " quantizer {}", word(case.texts.get(name)));
    }
    text
}

fn dim(case: &Case, dim: Dim) -> String {
    match dim {
        Dim::Number(n) => n.to_string(),
        Dim::Symbol(text) => word(case.texts.get(text)).into_owned(),
    }
}

/// A word, quoted where it would be taken for something else.
fn word(text: &str) -> Cow<'_, str> {
    let special = |c: char| c.is_whitespace() || c.is_control() || c == '"' || c == '\\';
    let taken = text.is_empty() || text.starts_with(['%', '@', '#', ';']) || ["=", "(", ")", ":", "<-"].contains(&text);
    if !taken && !text.contains(special) {
        return Cow::Borrowed(text);
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\r', "\\r");
    Cow::Owned(format!("\"{escaped}\""))
}

fn print_graph(case: &Case, graph: &Graph, indent: &str, out: &mut String) {
    let name = |n: usize| value(case, graph.nodes[n].name);
    for (n, node) in graph.nodes.iter().enumerate() {
        let mut args = String::new();
        for (i, arg) in node.args.iter().enumerate() {
            let _ = match arg {
                Arg::Value(v) => write!(args, " {}", name(*v)),
                Arg::Text(text) => write!(args, " {}", word(case.texts.get(*text))),
                Arg::Body(body) => {
                    let _ = writeln!(out, "{indent}body b{n}_{i}");
                    print_graph(case, body, &format!("{indent}  "), out);
                    let _ = writeln!(out, "{indent}end");
                    write!(args, " @b{n}_{i}")
                }
            };
        }
        let results = match &node.results {
            Results::One(t) => format!("T{t}"),
            Results::Many(types) => types.iter().fold("(".to_owned(), |text, t| format!("{text} T{t}")) + " )",
        };
        let op = match node.op {
            Op::Input(kind, target) => {
                format!("input {} {}", word(case.texts.get(kind)), word(case.texts.get(target)))
            }
            Op::Copy => "copy".into(),
            Op::Item(k) => format!("item {k}"),
            Op::Call(op) => format!("call {}", word(case.texts.get(op))),
        };
        let _ = write!(out, "{indent}{} : {results} = {op}{args}", name(n));
        for (k, share) in &node.shares {
            let _ = match share {
                Share::Same(v) => write!(out, " ; same {k} {}", name(*v)),
                Share::View(v) => write!(out, " ; view {k} {}", name(*v)),
                Share::May(of) => {
                    write!(out, " ; may {k}{}", of.iter().fold(String::new(), |t, &v| t + " " + &name(v)))
                }
            };
        }
        for write in &node.writes {
            let result = write.result.map(|k| format!(" {k}")).unwrap_or_default();
            let _ = write!(out, " ; writes {}{result}", name(write.value));
        }
        if let Some(kept) = node.keeps {
            let _ = write!(out, " ; keeps {}", name(kept));
        }
        out.push_str(if node.impure { " ; impure\n" } else { "\n" });
    }
    for output in &graph.outputs {
        let value = match &output.value {
            Arg::Value(v) => name(*v),
            Arg::Text(text) => word(case.texts.get(*text)).into_owned(),
            Arg::Body(_) => "body".into(),
        };
        let role = match output.role {
            Role::User => "output".into(),
            Role::Other => "other".into(),
            Role::Mutation(kind, target) => {
                format!("mutate {} {} <-", word(case.texts.get(kind)), word(case.texts.get(target)))
            }
        };
        let named = output.named.map(|n| format!(" as {}", word(case.texts.get(n)))).unwrap_or_default();
        let _ = writeln!(out, "{indent}{role} {value}{named}");
    }
}

fn value(case: &Case, name: Text) -> String {
    format!("%{}", case.texts.get(name))
}
