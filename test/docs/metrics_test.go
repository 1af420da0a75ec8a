package docs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/test/kube"
)

// metric is a metric as its definition in the code describes it.
type metric struct {
	name, kind, help string
	labels           []string
}

// metrics has all metrics of the product's own. They are read from the code, where each is
// defined by constants: a process shows no vector that has no series yet.
func metrics(t *testing.T, _ *stage) string {
	all := definitions(t)
	var out strings.Builder
	out.WriteString(`# Metrics

Generated from their definitions by ` + "`make docs`" + `; do not edit.

At ` + "`/metrics`" + ` of ` + "`listen.serve`" + `, in the formats of Prometheus, beside those of the Go runtime
(` + "`go_*`" + `) and of the process (` + "`process_*`" + `). On a hub a token is needed that may get
` + "`/metrics`" + `. Histograms are native and classic.

| Metric | Type | Labels | Description |
|---|---|---|---|
`)
	for _, m := range all {
		var labels []string
		for _, l := range m.labels {
			labels = append(labels, "`"+l+"`")
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(labels, ", "), cell(m.help))
	}
	return out.String()
}

// definitions finds all calls that define a metric.
func definitions(t *testing.T) []metric {
	t.Helper()
	byDir := map[string][]*ast.File{}
	fset := token.NewFileSet()
	for _, dir := range []string{"cmd", "internal", "pkg"} {
		must(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			byDir[filepath.Dir(path)] = append(byDir[filepath.Dir(path)], file)
			return err
		}))
	}
	var all []metric
	for _, files := range byDir {
		p := reader{values: map[string]ast.Expr{}, functions: map[string]function{}}
		for _, f := range files {
			p.declare(f)
		}
		for _, f := range files {
			p.read(f, func(at ast.Node, m metric, err error) {
				if err != nil {
					t.Errorf("%s: this metric cannot be documented: %v", fset.Position(at.Pos()), err)
				}
				all = append(all, m)
			})
		}
	}
	if len(all) < 50 {
		t.Fatalf("only %d metrics were found", len(all))
	}
	slices.SortFunc(all, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	for i := 1; i < len(all); i++ {
		if all[i].name == all[i-1].name {
			t.Errorf("%s is defined twice", all[i].name)
		}
	}
	return all
}

// reader reads the metrics of one package.
type reader struct {
	values    map[string]ast.Expr // of constants and variables
	functions map[string]function
}

// function is a function, declared or assigned to a variable.
type function struct {
	params   []string
	variadic bool
	body     *ast.BlockStmt
}

// values are what parameters are: each a string or a []string.
type values map[string]any

var constructors = regexp.MustCompile(`^New(Desc|(Counter|Gauge|Histogram|Summary)(Vec|Func)?)$`)

// constructor returns the name of the function of prometheus that a call defines a metric by.
func constructor(call *ast.CallExpr) string {
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok && constructors.MatchString(sel.Sel.Name) {
		if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "prometheus" {
			return sel.Sel.Name
		}
	}
	return ""
}

// declare remembers what expressions of a file may refer to.
func (r *reader) declare(f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) {
					r.values[name.Name] = n.Values[i]
				}
			}
		case *ast.FuncDecl:
			r.function(n.Name.Name, n.Type, n.Body)
		case *ast.AssignStmt:
			for i, rhs := range n.Rhs {
				if name, ok := n.Lhs[i].(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) {
					if lit, ok := rhs.(*ast.FuncLit); ok {
						r.function(name.Name, lit.Type, lit.Body)
					}
				}
			}
		}
		return true
	})
}

func (r *reader) function(name string, typ *ast.FuncType, body *ast.BlockStmt) {
	f := function{body: body}
	for _, p := range typ.Params.List {
		_, f.variadic = p.Type.(*ast.Ellipsis)
		for _, n := range p.Names {
			f.params = append(f.params, n.Name)
		}
	}
	r.functions[name] = f
}

// defines returns the call in a function that defines a metric which a parameter names.
func (f function) defines() (found *ast.CallExpr) {
	if f.body == nil || len(f.params) == 0 {
		return nil
	}
	ast.Inspect(f.body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && constructor(call) != "" {
			if id, ok := nameOf(call).(*ast.Ident); ok && slices.Contains(f.params, id.Name) {
				found = call
			}
		}
		return true
	})
	return found
}

// nameOf returns the expression that names a metric.
func nameOf(call *ast.CallExpr) ast.Expr {
	if lit, ok := call.Args[0].(*ast.CompositeLit); ok {
		return field(lit, "Name")
	}
	return call.Args[0]
}

func field(lit *ast.CompositeLit, name string) ast.Expr {
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == name {
				return kv.Value
			}
		}
	}
	return nil
}

// read calls found with each metric that a file defines.
func (r *reader) read(f *ast.File, found func(ast.Node, metric, error)) {
	of := map[*ast.CallExpr]bool{} // calls that define what others name
	for _, f := range r.functions {
		of[f.defines()] = true
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if constructor(call) != "" && !of[call] {
			m, err := r.define(call, nil)
			found(call, m, err)
		}
		if id, ok := call.Fun.(*ast.Ident); ok {
			if f := r.functions[id.Name]; f.defines() != nil {
				env, err := r.bind(f, call, nil)
				m, err2 := r.define(f.defines(), env)
				found(call, m, errors.Join(err, err2))
			}
		}
		return true
	})
}

// bind evaluates the arguments of a call.
func (r *reader) bind(f function, call *ast.CallExpr, env values) (values, error) {
	out := values{}
	for i, p := range f.params {
		if f.variadic && i == len(f.params)-1 {
			list, err := r.texts(&ast.CallExpr{Args: append([]ast.Expr{&ast.CompositeLit{}}, call.Args[min(i, len(call.Args)):]...), Ellipsis: call.Ellipsis}, env)
			if err != nil {
				return nil, err
			}
			out[p] = list
			continue
		}
		if text, err := r.text(call.Args[i], env); err == nil {
			out[p] = text
		} else if list, err := r.texts(call.Args[i], env); err == nil {
			out[p] = list
		} // else it is something else, which no text is made of
	}
	return out, nil
}

// define reads the call that defines a metric.
func (r *reader) define(call *ast.CallExpr, env values) (m metric, err error) {
	name := constructor(call)
	m.kind = strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(name, "New"), "Vec"), "Func"))
	var help, namespace, labels ast.Expr
	switch lit, ok := call.Args[0].(*ast.CompositeLit); {
	case ok:
		help, namespace = field(lit, "Help"), field(lit, "Namespace")
		if strings.HasSuffix(name, "Vec") {
			labels = call.Args[1]
		}
	case name == "NewDesc":
		help, labels = call.Args[1], call.Args[2]
	default:
		return m, errors.New("its options are no literal")
	}
	var errs [4]error
	m.name, errs[0] = r.text(nameOf(call), env)
	m.help, errs[1] = r.text(help, env)
	if namespace != nil {
		var ns string
		ns, errs[2] = r.text(namespace, env)
		m.name = ns + "_" + m.name
	}
	m.labels, errs[3] = r.texts(labels, env)
	if m.kind == "desc" {
		m.kind = "gauge"
		if strings.HasSuffix(m.name, "_total") {
			m.kind = "counter"
		}
	}
	return m, errors.Join(errs[:]...)
}

// text evaluates an expression that is a constant.
func (r *reader) text(e ast.Expr, env values) (string, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return strconv.Unquote(e.Value)
	case *ast.BinaryExpr:
		a, err1 := r.text(e.X, env)
		b, err2 := r.text(e.Y, env)
		return a + b, errors.Join(err1, err2)
	case *ast.ParenExpr:
		return r.text(e.X, env)
	case *ast.Ident:
		if text, ok := env[e.Name].(string); ok {
			return text, nil
		}
		if v, ok := r.values[e.Name]; ok {
			return r.text(v, nil)
		}
		return "", fmt.Errorf("%s is not a constant of the package", e.Name)
	}
	return "", fmt.Errorf("%T is not a constant", e)
}

// texts evaluates an expression that is a list of constants.
func (r *reader) texts(e ast.Expr, env values) (out []string, err error) {
	add := func(e ast.Expr) {
		text, err2 := r.text(e, env)
		out, err = append(out, text), errors.Join(err, err2)
	}
	switch e := e.(type) {
	case nil:
		return nil, nil
	case *ast.CompositeLit:
		for _, elt := range e.Elts {
			add(elt)
		}
		return out, err
	case *ast.Ident:
		if list, ok := env[e.Name].([]string); ok || e.Name == "nil" {
			return list, nil
		}
		if v, ok := r.values[e.Name]; ok {
			return r.texts(v, nil)
		}
	case *ast.CallExpr:
		if id, ok := e.Fun.(*ast.Ident); ok && id.Name != "append" {
			f := r.functions[id.Name]
			inner, err := r.bind(f, e, env)
			if err != nil || f.body == nil {
				return nil, errors.Join(fmt.Errorf("%s is no function of the package", id.Name), err)
			}
			if ret, ok := f.body.List[len(f.body.List)-1].(*ast.ReturnStmt); ok && len(ret.Results) == 1 {
				return r.texts(ret.Results[0], inner)
			}
			return nil, fmt.Errorf("%s returns no list", id.Name)
		}
		if out, err = r.texts(e.Args[0], env); err != nil {
			return nil, err
		}
		out = slices.Clone(out)
		for i, arg := range e.Args[1:] {
			if e.Ellipsis.IsValid() && i == len(e.Args)-2 {
				more, err2 := r.texts(arg, env)
				out, err = append(out, more...), errors.Join(err, err2)
				continue
			}
			add(arg)
		}
		return out, err
	}
	return nil, fmt.Errorf("%T is not a list of constants", e)
}

var helpLine = regexp.MustCompile(`(?m)^# HELP (federator_\S+) (.*)$`)

// scraper may read metrics.
const scraper = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scraper}
rules:
- {nonResourceURLs: [/metrics], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scraper}
subjects: [{kind: ServiceAccount, name: scraper, namespace: teams}]
`

// TestReference_MetricsAreThoseOfAProcess compares the reference with what a process serves.
func TestReference_MetricsAreThoseOfAProcess(t *testing.T) {
	s := booted(t)
	must(t, s.fleet.Hub.Apply(t.Context(), []byte(scraper)))
	token, err := s.fleet.Hub.IssueToken(t.Context(), "teams", "scraper", time.Hour)
	must(t, err)
	known := map[string]string{}
	for _, m := range definitions(t) {
		known[m.name] = m.help
	}
	var served [][]string
	must(t, kube.Until(t.Context(), patience, func() error { // those of members come with them
		text, err := scrape(t.Context(), "http://"+s.server.addresses["serve"]+"/metrics", token.Token)
		served = helpLine.FindAllStringSubmatch(text, -1)
		if err == nil && len(served) < 25 {
			err = fmt.Errorf("a process serves %d metrics of ours:\n%s", len(served), text)
		}
		return err
	}))
	for _, m := range served {
		if help, ok := known[m[1]]; !ok || help != m[2] {
			t.Errorf("%s is served with %q, and documented with %q", m[1], m[2], help)
		}
	}
}

// scrape reads metrics with a token.
func scrape(ctx context.Context, url, token string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(text), err
}
