package queries

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// Kinds whose relations are in their bodies.
const (
	pod           aggregate.Kind = "Pod"
	node          aggregate.Kind = "Node"
	service       aggregate.Kind = "Service"
	endpointSlice aggregate.Kind = "EndpointSlice.discovery.k8s.io"
	configMap     aggregate.Kind = "ConfigMap"
	secret        aggregate.Kind = "Secret"
	claim         aggregate.Kind = "PersistentVolumeClaim"
	account       aggregate.Kind = "ServiceAccount"
)

// serviceNameLabel is the label of an EndpointSlice with the name of its Service.
const serviceNameLabel = "kubernetes.io/service-name"

// expand links the objects that are related to the node at i.
func (x *traversal) expand(ctx context.Context, i int) error {
	if x.up {
		if err := x.linkOwners(ctx, i); err != nil {
			return err
		}
	}
	if x.down {
		if err := x.linkOwned(ctx, i); err != nil {
			return err
		}
	}
	type step struct {
		wanted bool
		do     func(context.Context, int) error
	}
	var steps []step
	switch x.objects[i].Ref().Kind {
	case pod:
		steps = []step{{x.down, x.podReferences}, {x.up, x.podReferrers}}
	case service:
		steps = []step{{x.down, x.serviceTargets}}
	case endpointSlice:
		steps = []step{{x.down, x.sliceTargets}, {x.up, x.sliceService}}
	case node:
		steps = []step{{x.up, x.podsOnNode}}
	case configMap, secret, claim, account:
		steps = []step{{x.up, x.podsUsing}}
	}
	for _, s := range steps {
		if !s.wanted {
			continue
		}
		if err := s.do(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// linkOwners links the objects that the node names as its owners. An owner is in
// the namespace of what it owns, or cluster-scoped.
func (x *traversal) linkOwners(ctx context.Context, i int) error {
	o := x.objects[i]
	for _, owner := range o.Owners() {
		group, _, ok := strings.Cut(owner.APIVersion, "/")
		if !ok {
			group = ""
		}
		ref := aggregate.Ref{Member: x.member, Kind: aggregate.MakeKind(owner.Kind, group), Namespace: o.Namespace(), Name: owner.Name}
		found, ok := x.snapshot.Get(ref)
		if !ok && ref.Namespace != "" {
			ref.Namespace = ""
			found, ok = x.snapshot.Get(ref)
		}
		if !ok || found.UID() != owner.UID {
			continue
		}
		if err := x.link(ctx, i, found, owns, false); err != nil {
			return err
		}
	}
	return nil
}

// linkOwned links the objects of any kind that name the node as their owner.
func (x *traversal) linkOwned(ctx context.Context, i int) error {
	uid := x.objects[i].UID()
	if uid == "" {
		return nil
	}
	for scope := range x.snapshot.Scopes(x.member) {
		if !x.included(scope.Kind) {
			continue
		}
		for o := range x.snapshot.Owned(scope.Kind, x.member, uid) {
			if err := x.link(ctx, i, o, owns, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// linkNamed links an object by its name, if it exists.
func (x *traversal) linkNamed(ctx context.Context, i int, kind aggregate.Kind, namespace, name string, relation Relation) error {
	if name == "" {
		return nil
	}
	o, ok := x.snapshot.Get(aggregate.Ref{Member: x.member, Kind: kind, Namespace: namespace, Name: name})
	if !ok {
		return nil
	}
	return x.link(ctx, i, o, relation, true)
}

// search yields the objects of a kind that match selectors in a namespace ("": all) of the
// member and may be listed. It stops at MaxReads.
func (x *traversal) search(ctx context.Context, kind aggregate.Kind, namespace, labelSelector, fieldSelector string) iter.Seq2[aggregate.Object, error] {
	return func(yield func(aggregate.Object, error) bool) {
		if !x.included(kind) {
			return
		}
		reach, err := x.grant(ctx, kind)
		if err != nil || reach.Empty() {
			if err != nil {
				yield(aggregate.Object{}, err)
			}
			return
		}
		selector, err := selection.Compile(labelSelector, fieldSelector, kind)
		if err != nil {
			return // the name is not valid in a selector: nothing has it
		}
		find := selection.Listing{
			Snapshot: x.snapshot, Selector: selector, Namespace: namespace, Members: []string{x.member},
			Grants: authz.NewGrants(map[string]authz.MemberGrant{x.member: reach}, x.grants[kind].Expires()),
		}
		for o, err := range find.List(ctx) {
			if err == nil {
				err = ctx.Err()
			}
			if x.reads++; err == nil && x.reads > x.options.MaxReads {
				x.graph.Truncated = true
				return
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// decode decodes an object's body. Fields of an unexpected type are treated as absent:
// members are not trusted to be valid.
func (x *traversal) decode(o aggregate.Object, to any) error {
	b, err := x.scratch.Body(o)
	if err != nil {
		return fmt.Errorf("%s: %w", o.Ref(), err)
	}
	var mismatch *json.UnmarshalTypeError
	if err := json.Unmarshal(b, to); err != nil && !errors.As(err, &mismatch) {
		return fmt.Errorf("%s: %w", o.Ref(), err)
	}
	return nil
}

func (x *traversal) podReferences(ctx context.Context, i int) error {
	o := x.objects[i]
	var body podSpec
	if err := x.decode(o, &body); err != nil {
		return err
	}
	for _, u := range body.references() {
		namespace := o.Namespace()
		if u.kind == node {
			namespace = ""
		}
		if err := x.linkNamed(ctx, i, u.kind, namespace, u.name, u.relation); err != nil {
			return err
		}
	}
	return nil
}

// podReferrers links the Services that select a Pod and the EndpointSlices that target
// it.
func (x *traversal) podReferrers(ctx context.Context, i int) error {
	o := x.objects[i]
	for s, err := range x.search(ctx, service, o.Namespace(), "", "") {
		if err != nil {
			return err
		}
		var body serviceSpec
		if err := x.decode(s, &body); err != nil {
			return err
		}
		if body.selects(o) {
			if err := x.link(ctx, i, s, selects, false); err != nil {
				return err
			}
		}
	}
	for s, err := range x.search(ctx, endpointSlice, o.Namespace(), "", fieldEquals("endpoints.targetRef.name", o.Name())) {
		if err != nil {
			return err
		}
		var body endpointSliceSpec
		if err := x.decode(s, &body); err != nil {
			return err
		}
		if body.targets(o.Name()) {
			if err := x.link(ctx, i, s, targets, false); err != nil {
				return err
			}
		}
	}
	return nil
}

func fieldEquals(path, value string) string { return path + "=" + selection.EscapeValue(value) }

func (x *traversal) serviceTargets(ctx context.Context, i int) error {
	o := x.objects[i]
	var body serviceSpec
	if err := x.decode(o, &body); err != nil {
		return err
	}
	for s, err := range x.search(ctx, endpointSlice, o.Namespace(), serviceNameLabel+"="+o.Name(), "") {
		if err != nil {
			return err
		}
		if err := x.link(ctx, i, s, publishes, true); err != nil {
			return err
		}
	}
	if len(body.Spec.Selector) == 0 {
		return nil
	}
	for p, err := range x.search(ctx, pod, o.Namespace(), labels.Set(body.Spec.Selector).String(), "") {
		if err != nil {
			return err
		}
		if err := x.link(ctx, i, p, selects, true); err != nil {
			return err
		}
	}
	return nil
}

func (x *traversal) sliceTargets(ctx context.Context, i int) error {
	o := x.objects[i]
	var body endpointSliceSpec
	if err := x.decode(o, &body); err != nil {
		return err
	}
	for _, e := range body.Endpoints {
		if e.TargetRef.Kind != string(pod) {
			continue
		}
		if err := x.linkNamed(ctx, i, pod, o.Namespace(), e.TargetRef.Name, targets); err != nil {
			return err
		}
	}
	return nil
}

func (x *traversal) sliceService(ctx context.Context, i int) error {
	o := x.objects[i]
	name, _ := o.Label(serviceNameLabel)
	if name == "" {
		return nil
	}
	s, ok := x.snapshot.Get(aggregate.Ref{Member: x.member, Kind: service, Namespace: o.Namespace(), Name: name})
	if !ok {
		return nil
	}
	return x.link(ctx, i, s, publishes, false)
}

func (x *traversal) podsOnNode(ctx context.Context, i int) error {
	for p, err := range x.search(ctx, pod, "", "", fieldEquals("spec.nodeName", x.objects[i].Name())) {
		if err != nil {
			return err
		}
		if err := x.link(ctx, i, p, runsOn, false); err != nil {
			return err
		}
	}
	return nil
}

// podsUsing links the Pods of the namespace that name an object.
func (x *traversal) podsUsing(ctx context.Context, i int) error {
	o := x.objects[i]
	name, err := json.Marshal(o.Name())
	if err != nil {
		return fmt.Errorf("%s: %w", o.Ref(), err)
	}
	for p, err := range x.search(ctx, pod, o.Namespace(), "", "") {
		if err != nil {
			return err
		}
		raw, err := x.scratch.Body(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Ref(), err)
		}
		if !bytes.Contains(raw, name) {
			continue
		}
		var body podSpec
		if err := x.decode(p, &body); err != nil {
			return err
		}
		for _, u := range body.references() {
			if u.kind != o.Ref().Kind || u.name != o.Name() {
				continue
			}
			if err := x.link(ctx, i, p, u.relation, false); err != nil {
				return err
			}
		}
	}
	return nil
}
