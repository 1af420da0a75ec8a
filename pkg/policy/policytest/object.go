package policytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
)

// encoder builds a record from an object of a fixture.
type encoder struct {
	object map[string]any
	meta   map[string]any
	keep   bool  // the object as it is: with values of Secrets, without a name or a UID
	err    error // the first
}

// record returns the record of the object, its kind and its API version. uid is that of
// an object without one.
func (e *encoder) record(uid string) (*aggregate.Record, aggregate.Kind, string, error) {
	e.object, _ = normalizeNumbers(e.object).(map[string]any) // a copy
	version, kind := e.text(e.object, "apiVersion"), e.text(e.object, "kind")
	meta, ok := e.object["metadata"].(map[string]any)
	if !ok && (!e.keep || e.object["metadata"] != nil) {
		e.fail("metadata is not a map")
	}
	if meta == nil {
		meta = map[string]any{}
	}
	e.meta = meta
	rec := &aggregate.Record{Namespace: e.optional(meta, "namespace", "")}
	if rec.Name = e.optional(meta, "name", ""); rec.Name == "" && e.keep {
		rec.Name = "unnamed"
	} else if rec.Name == "" {
		rec.Name = e.text(meta, "name")
	}
	rec.UID, rec.ResourceVersion = e.optional(meta, "uid", uid), e.optional(meta, "resourceVersion", "1")
	if !e.keep {
		meta["uid"], meta["resourceVersion"] = rec.UID, rec.ResourceVersion
		delete(meta, "managedFields")
	}
	rec.Labels = labelList(e.texts("labels"))
	e.texts("annotations")
	rec.Owners = e.owners()
	gv, err := schema.ParseGroupVersion(version)
	if err != nil || gv.Version == "" {
		e.fail("apiVersion %q is not GROUP/VERSION, or v1", version)
	}
	fleetKind := aggregate.MakeKind(kind, gv.Group)
	if ref, err := module.ParseKind(string(fleetKind)); e.err == nil && (err != nil || ref.Version != "") {
		e.fail("%q is not a kind", fleetKind)
	}
	if !e.keep && (fleetKind == "Secret" || fleetKind == "ConfigMap") {
		e.redact()
	}
	if e.err != nil {
		return nil, "", "", e.err
	}
	rec.Body, err = canonicalJSON(e.object)
	return rec, fleetKind, version, err
}

func (e *encoder) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}

// text returns a string that must be there.
func (e *encoder) text(from map[string]any, key string) string {
	s, _ := from[key].(string)
	if s == "" {
		e.fail("the object has no %s, or it is not a string", key)
	}
	return s
}

func (e *encoder) optional(from map[string]any, key, or string) string {
	if from[key] == nil {
		return or
	}
	s, ok := from[key].(string)
	if !ok {
		e.fail("metadata.%s is not a string", key)
	}
	return s
}

// texts returns a map of strings of the metadata.
func (e *encoder) texts(key string) map[string]string {
	m, ok := e.meta[key].(map[string]any)
	if !ok && e.meta[key] != nil {
		e.fail("metadata.%s is not a map", key)
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		s, ok := v.(string)
		if !ok {
			e.fail("metadata.%s: the value of %q is not a string", key, k)
		}
		out[k] = s
	}
	return out
}

// owners reads metadata.ownerReferences.
func (e *encoder) owners() []aggregate.Owner {
	raw := e.meta["ownerReferences"]
	if raw == nil {
		return nil
	}
	text, err := json.Marshal(raw)
	var list []struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		UID        string `json:"uid"`
		Controller bool   `json:"controller"`
	}
	if err = errors.Join(err, json.Unmarshal(text, &list)); err != nil {
		e.fail("metadata.ownerReferences: %w", err)
	}
	var out []aggregate.Owner
	for _, o := range list {
		out = append(out, aggregate.Owner{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID, Controller: o.Controller})
	}
	return out
}

// redact removes the values that are removed at ingest, unless that is disabled.
func (e *encoder) redact() {
	for _, key := range []string{"data", "binaryData", "stringData"} {
		if values, ok := e.object[key].(map[string]any); ok {
			for k := range values {
				values[k] = ""
			}
		}
	}
	annotations, _ := e.meta["annotations"].(map[string]any)
	annotations = maps.Clone(annotations)
	if annotations == nil {
		annotations = map[string]any{}
	}
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	annotations[aggregate.RedactedAnnotation] = "true"
	e.meta["annotations"] = annotations
}

// normalizeNumbers copies a YAML value with its numbers as a member would send them.
func normalizeNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = normalizeNumbers(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = normalizeNumbers(x)
		}
		return out
	case json.Number:
		if !strings.ContainsAny(v.String(), ".eE") {
			if i, err := v.Int64(); err == nil {
				return i
			}
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
	}
	return v
}
