package versus

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"federator.dev/federator/pkg/policy/internal/value"
)

// wantedLabel is a label that objects must have.
type wantedLabel struct {
	key, pattern string
	expr         *regexp.Regexp // nil: any value
	kinds        []string       // nil: all
}

func newWantedLabels(params value.Value) (list []wantedLabel) {
	for _, l := range elems(params.Field("labels")) {
		w := wantedLabel{key: l.Field("key").Str(), kinds: strs(l.Field("kinds"))}
		if pattern, ok := text(l.Field("pattern")); ok {
			w.pattern, w.expr = pattern, regexp.MustCompile("^(?:"+pattern+")$")
		}
		list = append(list, w)
	}
	return list
}

func (w *wantedLabel) of(kind string) bool { return w.kinds == nil || slices.Contains(w.kinds, kind) }

func (w *wantedLabel) check(out *findings, value string) {
	switch {
	case value == "":
		out.add("label "+w.key+" is missing", details(nil).text("label", w.key).end())
	case w.expr != nil && !w.expr.MatchString(value):
		out.add("label "+w.key+" is "+value+", which does not match "+w.pattern, details(nil).text("label", w.key).text("pattern", w.pattern).text("value", value).end())
	}
}

func requiredLabels(params value.Value) rule {
	wanted := newWantedLabels(params)
	return func(s *subject, out *findings) {
		labels := s.object.Field("metadata").Field("labels")
		for i := range wanted {
			if w := &wanted[i]; w.of(s.kind) {
				value, _ := text(labels.Field(w.key))
				w.check(out, value)
			}
		}
	}
}

func suspendedMessage(annotation, lastRun string, ran bool) string {
	if !ran {
		return "suspended without annotation " + annotation + "; it never ran"
	}
	return "suspended without annotation " + annotation + "; it last ran at " + lastRun
}

func suspendedCronJob(params value.Value) rule {
	annotation := params.Field("annotation").Str()
	return func(s *subject, out *findings) {
		if !s.object.Field("spec").Field("suspend").IsTrue() {
			return
		}
		if why, _ := text(s.object.Field("metadata").Field("annotations").Field(annotation)); strings.TrimSpace(why) != "" {
			return
		}
		last, ran := text(s.object.Field("status").Field("lastScheduleTime"))
		out.add(suspendedMessage(annotation, last, ran), nil)
	}
}

// nodePorts are the parameters of node_port.
type nodePorts struct {
	ports         []int
	loadBalancers bool
}

func newNodePorts(params value.Value) *nodePorts {
	r := &nodePorts{loadBalancers: params.Field("loadBalancers").IsTrue()}
	for _, p := range elems(params.Field("ports")) {
		r.ports = append(r.ports, p.Int())
	}
	return r
}

func (r *nodePorts) check(out *findings, port int) {
	if port > 0 && !slices.Contains(r.ports, port) {
		out.add("port "+strconv.Itoa(port)+" is open on every node", details(nil).int("port", port).end())
	}
}

func nodePort(params value.Value) rule {
	r := newNodePorts(params)
	return func(s *subject, out *findings) {
		spec := s.object.Field("spec")
		if kind := spec.Field("type"); !is(kind, "NodePort") && !(r.loadBalancers && is(kind, "LoadBalancer")) {
			return
		}
		for _, p := range elems(spec.Field("ports")) {
			if port := p.Field("nodePort"); port.IsNumber() {
				r.check(out, port.Int())
			}
		}
	}
}

// wildcardRules are the parameters of wildcards.
type wildcardRules struct {
	fields  []string
	builtin bool
}

func isWildcard(text string) bool { return text == "*" || strings.HasPrefix(text, "*/") }

func (*wildcardRules) report(out *findings, i int, field, wildcard string) {
	out.add("rules["+strconv.Itoa(i)+"]."+field+" has "+wildcard, details(nil).text("field", field).int("rule", i).end())
}

// keptRole reports whether Kubernetes keeps the name of a role for itself.
func keptRole(name string) bool {
	switch name {
	case "admin", "cluster-admin", "edit", "view":
		return true
	}
	return strings.HasPrefix(name, "system:")
}

func wildcards(params value.Value) rule {
	r := &wildcardRules{strs(params.Field("fields")), params.Field("builtin").IsTrue()}
	return func(s *subject, out *findings) {
		if s.object.Field("aggregationRule").Kind() == value.Object {
			return
		}
		if !r.builtin && is(s.object.Field("metadata").Field("labels").Field("kubernetes.io/bootstrapping"), "rbac-defaults") && keptRole(s.name) {
			return
		}
		for i, each := range elems(s.object.Field("rules")) {
			for _, field := range r.fields {
				for _, x := range elems(each.Field(field)) {
					if wildcard, ok := text(x); ok && isWildcard(wildcard) {
						r.report(out, i, field, wildcard)
					}
				}
			}
		}
	}
}
