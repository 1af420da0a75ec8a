package policy_test

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/internal/module"
)

// oracleBinding is a binding and who is there for it.
type oracleBinding struct {
	policy.Binding

	pkg               *policy.Package
	selected, visible map[string]bool
	tolerated         map[string]bool
	store             storage.Store  // of the documents that the binding sees
	labels            map[string]any // of members
	subjectView       *oracleView
}

func (f *full) binding(b policy.Binding) error {
	x := &oracleBinding{
		Binding: b, pkg: f.set.Package(b.Package), selected: map[string]bool{}, visible: map[string]bool{}, tolerated: map[string]bool{},
		labels: map[string]any{},
	}
	parameters, problems := x.pkg.Parameters.Resolve(b.Parameters)
	if len(problems) > 0 {
		return fmt.Errorf("parameters: %v", problems)
	}
	if x.Parameters = parameters; parameters == nil {
		x.Parameters = map[string]any{}
	}
	for m := range f.s.Members() {
		x.selected[m.Name] = selects(b.Members, m)
		x.visible[m.Name] = selects(b.Visibility, m)
		x.tolerated[m.Name] = b.Tolerate != nil && selects(*b.Tolerate, m)
		set := map[string]any{}
		for _, l := range m.Labels {
			set[l.Key] = l.Value
		}
		x.labels[m.Name] = set
	}
	f.data(x)
	switch meta := x.pkg; {
	case meta.SubjectView != "":
		return f.keys(x)
	case meta.Subject == module.MemberSubject:
		for m := range f.s.Members() {
			if x.selected[m.Name] {
				input := map[string]any{"member": x.member(f, m.Name), "parameters": x.Parameters}
				f.verdict(x, policy.Subject{Ref: aggregate.Ref{Member: m.Name}}, aggregate.Object{}, input, nil)
			}
		}
		return nil
	}
	for _, o := range f.objects {
		pin, ok := ofKind(x.pkg, o.Ref().Kind)
		if !ok || !x.selected[o.Member()] || !fits(b.Match, o) {
			continue
		}
		input := map[string]any{
			"ref": refJSON(o.Ref()), "object": f.bodies[o.Ref()], "parameters": x.Parameters,
			"member": x.member(f, o.Member()),
		}
		var wrong error
		if !at(o.APIVersion(), pin) {
			wrong = errors.New("another version")
		}
		f.verdict(x, policy.Subject{Ref: o.Ref()}, o, input, wrong)
	}
	return nil
}

// facts is what is known of a member.
func (x *oracleBinding) facts(m aggregate.Member) map[string]any {
	apis, annotations, conditions := []any{}, map[string]any{}, map[string]any{}
	for _, a := range m.APIs {
		apis = append(apis, a)
	}
	for _, l := range m.Cluster.Annotations {
		annotations[l.Key] = l.Value
	}
	for _, c := range m.Cluster.Conditions {
		condition := map[string]any{"type": c.Type, "status": c.Status}
		if c.Reason != "" {
			condition["reason"] = c.Reason
		}
		conditions[c.Type] = condition
	}
	facts := map[string]any{
		"labels": x.labels[m.Name], "version": m.Version, "apis": apis,
		"annotations": annotations, "paused": m.Cluster.Paused, "conditions": conditions,
	}
	if c := m.Cluster; c.Class+c.Version != "" {
		facts["topology"] = map[string]any{"class": c.Class, "version": c.Version}
	}
	return facts
}

// member is input.member.
func (x *oracleBinding) member(f *full, name string) map[string]any {
	m, _ := f.s.Member(name)
	facts := x.facts(m)
	facts["name"] = name
	return facts
}

// data makes the documents that a binding sees.
func (f *full) data(x *oracleBinding) {
	fleet := map[string]any{"views": map[string]any{}, "by_name": map[string]any{}, "objects": map[string]any{}, "members": map[string]any{}, "scopes": map[string]any{}}
	names := []any{}
	for m := range f.s.Members() {
		if !x.visible[m.Name] {
			continue
		}
		names = append(names, m.Name)
		put(fleet, x.facts(m), "members", m.Name)
		for info := range f.s.Scopes(m.Name) {
			put(fleet, info.Status.State.String(), "scopes", m.Name, string(info.Kind))
		}
	}
	fleet["names"] = names
	for _, o := range f.objects {
		if !x.visible[o.Member()] {
			continue
		}
		// A pinned kind is the kind, under another name.
		spellings := []string{string(o.Ref().Kind)}
		if kind, group := o.Ref().Kind.Split(); group != "" {
			spellings = append(spellings, kind+".v1."+group)
		} else {
			spellings = append(spellings, kind+".v1")
		}
		for _, spelling := range spellings {
			put(fleet, f.bodies[o.Ref()], "by_name", spelling, o.Namespace(), o.Name(), o.Member())
			put(fleet, f.bodies[o.Ref()], "objects", spelling, o.Member(), o.Namespace(), o.Name())
		}
	}
	for name, v := range f.views {
		pkg, view := v.pkg.Name, strings.TrimPrefix(name, v.pkg.Name+".")
		byKey := map[string]any{}
		for _, e := range v.entries {
			if x.visible[e.ref.Member] {
				list, _ := byKey[e.key].([]any)
				byKey[e.key] = append(list, map[string]any{"ref": refJSON(e.ref), "value": jsonOf(e.value)})
			}
		}
		put(fleet, byKey, "views", pkg, view)
	}
	fleet["external"] = f.now.documents.tree()
	x.store = inmem.NewFromObject(map[string]any{"fleet": fleet}) // a copy, which evaluations only read
}

// keys evaluates the keys of a view.
func (f *full) keys(x *oracleBinding) error {
	v := f.views[x.pkg.Name+"."+x.pkg.SubjectView]
	x.subjectView = v
	entries := map[string][]any{}
	for _, e := range v.entries {
		o, _ := f.s.Get(e.ref)
		if x.selected[e.ref.Member] && x.visible[e.ref.Member] && fits(x.Match, o) {
			entries[e.key] = append(entries[e.key], map[string]any{"ref": refJSON(e.ref), "value": jsonOf(e.value)})
		}
	}
	for key, list := range entries {
		f.verdict(x, policy.Subject{Key: key}, aggregate.Object{}, map[string]any{"key": key, "entries": list, "parameters": x.Parameters}, nil)
	}
	return nil
}

// pinError says whether a path leads to objects at another version than it pins.
func (f *full) pinError(x *oracleBinding, p storage.Path) error {
	if len(p) < 3 || p[0] != "fleet" || p[1] != "by_name" && p[1] != "objects" || !strings.Contains(p[2], ".v1") {
		return nil
	}
	for _, o := range f.objects {
		kind := strings.Replace(p[2], ".v1", "", 1)
		where := []string{o.Namespace(), o.Name(), o.Member()}
		if p[1] == "objects" {
			where = []string{o.Member(), o.Namespace(), o.Name()}
		}
		below := p[3:min(len(p), 6)]
		if string(o.Ref().Kind) == kind && x.visible[o.Member()] && slices.Equal(where[:len(below)], below) && !at(o.APIVersion(), "v1") {
			return errors.New("another version")
		}
	}
	return nil
}

func (f *full) verdict(x *oracleBinding, subject policy.Subject, o aggregate.Object, input map[string]any, wrong error) {
	store := &recorder{Store: x.store, asOf: f.now.asOf, bad: func(p storage.Path) error { return f.pinError(x, p) }}
	var text string
	err := wrong
	if err == nil {
		var out ast.Value
		if out, err = f.eval(f.ctx, x.Package+".violation", astOf(input), store); err == nil {
			text, err = f.violations(x, subject, o, out)
		}
	}
	if errors.Is(err, errOracle) {
		f.broken = err
	}
	state := f.reads(x, subject, o, store.paths)
	if err != nil {
		state = policy.Error
	}
	if state == policy.Error {
		text = ""
	}
	f.verdicts[x.Name+" | "+subject.String()] = textVerdict{state, text}
}

func selects(m policy.MemberSelector, member aggregate.Member) bool {
	ok := len(m.Names) == 0
	for _, pattern := range m.Names {
		matched, err := path.Match(pattern, member.Name)
		ok = ok || err == nil && matched
	}
	return ok && labelled(m.Labels, member.Labels)
}

func labelled(selector *metav1.LabelSelector, list []aggregate.Label) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		panic(err)
	}
	set := labels.Set{}
	for _, l := range list {
		set[l.Key] = l.Value
	}
	return s.Matches(set)
}

func fits(m policy.Match, x aggregate.Object) bool {
	return (len(m.Kinds) == 0 || slices.Contains(m.Kinds, x.Ref().Kind)) && named(m.Namespaces, x.Namespace()) && labelled(m.Labels, x.Labels())
}

func named(patterns []string, s string) bool {
	for _, p := range patterns {
		if ok, _ := path.Match(p, s); ok {
			return true
		}
	}
	return len(patterns) == 0
}
