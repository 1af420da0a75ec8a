package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/kube"
)

// held is what is compared of one object.
type held struct {
	uid, resourceVersion string
	body                 map[string]any
}

// exact waits until the index holds exactly what the member serves, by fresh
// lists around the proxy, of the given kinds or of all that are kept. It
// returns the number of objects.
func (f *federator) exact(ctx context.Context, within time.Duration, member string, c *kube.ControlPlane, kinds ...aggregate.Kind) (int, error) {
	counts := map[aggregate.Kind]int{}
	err := until(ctx, within, func() error {
		served, err := discover(c)
		if err != nil {
			return err
		}
		var errs []error
		for kind, versions := range served {
			if _, kept := f.config.rule(kind); !kept || len(kinds) > 0 && !slices.Contains(kinds, kind) {
				continue
			}
			n, err := f.compare(ctx, member, c, kind, versions)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", kind, err))
			}
			counts[kind] = n
		}
		for _, kind := range kinds {
			if _, ok := served[kind]; !ok {
				errs = append(errs, fmt.Errorf("%s is not served", kind))
			}
		}
		for scope := range f.index.Snapshot().Scopes(member) {
			if _, ok := served[scope.Kind]; !ok && scope.Objects > 0 {
				errs = append(errs, fmt.Errorf("%s: %d objects of a kind that is not served", scope.Kind, scope.Objects))
			}
		}
		return errors.Join(errs...)
	})
	total := 0
	for _, n := range counts {
		total += n
	}
	return total, err
}

// discover returns the resources that can be listed and watched, by kind and
// version.
func discover(c *kube.ControlPlane) (map[aggregate.Kind]map[string]metav1.APIResource, error) {
	_, lists, err := c.Client().Discovery().ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	out := map[aggregate.Kind]map[string]metav1.APIResource{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
				continue
			}
			kind := aggregate.MakeKind(r.Kind, gv.Group)
			if out[kind] == nil {
				out[kind] = map[string]metav1.APIResource{}
			}
			out[kind][gv.String()] = r
		}
	}
	return out, nil
}

// compare compares one scope with a fresh list, and returns how many objects
// the list has.
func (f *federator) compare(ctx context.Context, member string, c *kube.ControlPlane, kind aggregate.Kind, versions map[string]metav1.APIResource) (int, error) {
	scope, _ := f.index.Snapshot().Scope(member, kind)
	if scope.Status.State != aggregate.Synced && scope.Status.State != aggregate.Partial {
		return 0, fmt.Errorf("scope is %s %s", scope.Status.State, scope.Status.Reason)
	}
	resource, ok := versions[scope.Version]
	if !ok {
		return 0, fmt.Errorf("held at %s, which is not served", scope.Version)
	}
	want, err := f.list(ctx, c, kind, scope.Version, resource)
	if err != nil {
		return 0, err
	}
	got, err := f.holds(member, kind)
	if err != nil {
		return 0, err
	}
	var diffs []string
	for _, key := range slices.Sorted(maps.Keys(want)) {
		w := want[key]
		g, ok := got[key]
		switch {
		case !ok:
			diffs = append(diffs, key+" is missing")
		case g.uid != w.uid:
			diffs = append(diffs, fmt.Sprintf("%s has UID %s, want %s", key, g.uid, w.uid))
		case g.resourceVersion != w.resourceVersion:
			diffs = append(diffs, fmt.Sprintf("%s is at %s, want %s", key, g.resourceVersion, w.resourceVersion))
		case !reflect.DeepEqual(g.body, w.body):
			diffs = append(diffs, fmt.Sprintf("%s has body\n%v\nwant\n%v", key, g.body, w.body))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[key]; !ok {
			diffs = append(diffs, key+" should be gone")
		}
	}
	if len(diffs) > 0 {
		return len(want), fmt.Errorf("%d of %d objects differ, first: %s", len(diffs), len(want), diffs[0])
	}
	return len(want), nil
}

// holds returns what the index has, by namespace/name.
func (f *federator) holds(member string, kind aggregate.Kind) (map[string]held, error) {
	objects, err := f.index.Snapshot().List(aggregate.Query{Kind: kind, Members: []string{member}})
	if err != nil {
		return nil, err
	}
	out := map[string]held{}
	for o := range objects {
		raw, err := o.AppendBody(nil)
		if err != nil {
			return nil, err
		}
		h := held{uid: o.UID(), resourceVersion: o.ResourceVersion()}
		if h.body, err = decode(raw); err != nil {
			return nil, err
		}
		if managed, ok, _ := unstructured.NestedFieldNoCopy(h.body, "metadata", "managedFields"); ok {
			return nil, fmt.Errorf("%s holds managedFields: %v", o.Ref(), managed)
		}
		key := o.Namespace() + "/" + o.Name()
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("%s is listed twice", o.Ref())
		}
		out[key] = h
	}
	return out, nil
}

// list returns what the member has, as JSON of a fresh list around the proxy,
// shaped as the configuration says.
func (f *federator) list(ctx context.Context, c *kube.ControlPlane, kind aggregate.Kind, version string, r metav1.APIResource) (map[string]held, error) {
	rule, _ := f.config.rule(kind)
	namespaces := []string{""}
	if r.Namespaced && len(rule.Namespaces) > 0 {
		namespaces = rule.Namespaces
	}
	out := map[string]held{}
	for _, namespace := range namespaces {
		path := []string{"/apis", version}
		if !strings.Contains(version, "/") {
			path[0] = "/api"
		}
		if namespace != "" {
			path = append(path, "namespaces", namespace)
		}
		req := c.Client().CoreV1().RESTClient().Get().AbsPath(append(path, r.Name)...).SetHeader("Accept", "application/json")
		if rule.Labels != "" {
			req = req.Param("labelSelector", rule.Labels)
		}
		if rule.Fields != "" {
			req = req.Param("fieldSelector", rule.Fields)
		}
		raw, err := req.DoRaw(ctx)
		if err != nil {
			return nil, err
		}
		list, err := decode(raw)
		if err != nil {
			return nil, err
		}
		items, _ := list["items"].([]any)
		for _, item := range items {
			body := item.(map[string]any)
			body["apiVersion"], body["kind"] = version, r.Kind
			f.shape(kind, body, rule.Drop)
			u := unstructured.Unstructured{Object: body}
			out[u.GetNamespace()+"/"+u.GetName()] = held{string(u.GetUID()), u.GetResourceVersion(), body}
		}
	}
	return out, nil
}

// shape takes out what the index does not keep.
func (f *federator) shape(kind aggregate.Kind, body map[string]any, drop []string) {
	unstructured.RemoveNestedField(body, "metadata", "managedFields")
	for _, path := range drop {
		unstructured.RemoveNestedField(body, strings.Split(path, ".")...)
	}
	if f.config.KeepSecretValues || kind != "Secret" && kind != "ConfigMap" {
		return
	}
	for _, field := range []string{"data", "binaryData"} {
		values, _ := body[field].(map[string]any)
		for k := range values {
			values[k] = ""
		}
	}
	metadata := body["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	annotations["federator.dev/redacted"] = "true"
}

// decode reads JSON and keeps numbers as they are written.
func decode(raw []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var out map[string]any
	err := d.Decode(&out)
	return out, err
}
