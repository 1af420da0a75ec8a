package flat_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/flat"
)

// object is an object as maps.
type object = map[string]any

func decode(t testing.TB, b []byte) object {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var o object
	if err := dec.Decode(&o); err != nil {
		t.Fatalf("%v: %.300s", err, b)
	}
	return o
}

func canonical(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func kindOf(o object) aggregate.Kind {
	group, _, ok := strings.Cut(str(o["apiVersion"]), "/")
	if !ok {
		group = ""
	}
	return aggregate.MakeKind(str(o["kind"]), group)
}

func str(v any) string { s, _ := v.(string); return s }

func sub(v any, path ...string) object {
	for _, p := range path {
		m, _ := v.(object)
		v = m[p]
	}
	o, _ := v.(object)
	return o
}

const member, prefix = "fleet/eu.1", "fleet.eu_1."

// model makes an object's keys flat in another way than the table does: by what
// fields are called, wherever they are.
func model(o object, namespaced bool, scope flat.ScopeFunc) {
	kind := kindOf(o)
	meta := sub(o, "metadata")
	own, annotation, other := "namespace", api.OriginalNamespaceKey, api.OriginalNameKey
	if !namespaced {
		own, annotation, other = "name", api.OriginalNameKey, api.OriginalNamespaceKey
	}
	annotations := sub(meta, "annotations")
	delete(annotations, other)
	delete(annotations, annotation)
	if original := str(meta[own]); original != "" {
		if annotations == nil {
			annotations = object{}
			meta["annotations"] = annotations
		}
		annotations[annotation] = original
		meta[own] = prefix + original
	}
	byName := object{"ownerReferences": meta["ownerReferences"]}
	if group := strings.SplitN(string(kind)+".", ".", 2)[1]; known(group) {
		for key, v := range o {
			if key != "metadata" && key != "data" && key != "kind" && key != "apiVersion" {
				byName[key] = v
			}
		}
	}
	walk(byName, nil, func(at []string, m object) { names(kind, at, m, scope) })
	delete(byName, "ownerReferences")
	maps.Copy(o, byName)
}

// known reports whether a group's kinds are in the table.
func known(group string) bool {
	return !strings.Contains(strings.TrimSuffix(group, "."), ".") || strings.HasSuffix(group, ".k8s.io.") && group != "metrics.k8s.io."
}

// untouched are keys below which nothing follows.
var untouched = []string{
	"labels", "annotations", "matchLabels", "parameters", "schema", "validation", "env", "args", "containers", "initContainers", "ephemeralContainers",
	"affinity", "resourceRules", "scaleTargetRef", "metrics", "currentMetrics", "controllerRef", "metadata", "imagePullSecrets", "podGroupTemplateRef",
	"resource", "scaleIO.volumeName", "resourceAttributes", "reservedFor",
}

func walk(v any, at []string, visit func([]string, object)) {
	switch v := v.(type) {
	case object:
		visit(at, v)
		for key, inner := range v {
			if !slices.Contains(untouched, key) || key == "parameters" && slices.Equal(at, []string{"spec"}) {
				walk(inner, append(slices.Clip(at), key), visit)
			}
		}
	case []any:
		for _, inner := range v {
			walk(inner, at, visit)
		}
	}
}

// names are the fields that hold the names of cluster-scoped objects in any kind.
var clusterNames = []string{
	"nodeName", "nominatedNodeName", "priorityClassName", "runtimeClassName", "storageClassName", "volumeAttributesClassName",
	"currentVolumeAttributesClassName", "targetVolumeAttributesClassName", "ingressClassName", "deviceClassName", "persistentVolumeName", "policyName",
	"volumeSnapshotClassName", "volumeSnapshotContentName", "boundVolumeSnapshotContentName", "gatewayClassName",
}

// references are the fields that hold a reference, some of which say a kind.
var references = []string{
	"ownerReferences", "involvedObject", "regarding", "related", "targetRef", "claimRef", "roleRef", "dataSource", "dataSourceRef", "active",
	"parameters", "secrets", "volumeSnapshotRef", "parametersRef",
}

func names(kind aggregate.Kind, at []string, m object, scope flat.ScopeFunc) {
	join := func(key string) {
		if s := str(m[key]); s != "" {
			m[key] = prefix + s
		}
	}
	for _, key := range clusterNames {
		join(key)
	}
	last := ""
	if len(at) > 0 {
		last = at[len(at)-1]
	}
	switch {
	case last == "spec" && (kind == "PersistentVolumeClaim" || len(at) > 1 && strings.HasPrefix(at[len(at)-2], "volumeClaimTemplate")):
		join("volumeName")
	case last == "azureFile":
		join("secretNamespace")
	case last == "glusterfs":
		join("endpointsNamespace")
	case last == "clusterTrustBundle", last == "priorityLevelConfiguration":
		join("name")
	}
	switch last {
	case "configMap":
		if kind == "Node" {
			join("namespace")
		}
	case "service", "subjects", "serviceAccount", "parentRef", "parentRefs", "paramRef", "backendRefs", "backendRef", "certificateRefs", "from":
		join("namespace")
	}
	if strings.HasSuffix(last, "SecretRef") || last == "secretRef" {
		join("namespace")
	}
	if !slices.Contains(references, last) || last == "related" && len(at) > 1 {
		return
	}
	join("namespace")
	group, _, versioned := strings.Cut(str(m["apiVersion"]), "/")
	if !versioned {
		group = ""
	}
	for _, key := range []string{"apiGroup", "group"} {
		if s := str(m[key]); s != "" {
			group = s
		}
	}
	of := aggregate.MakeKind(str(m["kind"]), group)
	if of == "" {
		return
	}
	if flat.NewKeys("", true, scope).ClusterScoped(of) {
		if str(m["uid"]) == str(m["name"]) {
			join("uid")
		}
		join("name")
	}
}

// equal compares what Keys make of an object with what the model makes, and takes
// it back.
func equal(t *testing.T, body []byte, namespaced bool, scope flat.ScopeFunc) {
	t.Helper()
	o := decode(t, body)
	kind := kindOf(o)
	got := flat.NewKeys(kind, namespaced, scope).Append(nil, body, member)
	model(o, namespaced, scope)
	if have := decode(t, got); !reflect.DeepEqual(have, o) {
		t.Errorf("a %s is not what the model makes of it:\n%s", kind, difference("", have, o))
		return
	}
	// Back: no value of an object begins with the prefix unless it was put there.
	back := decode(t, got)
	original := decode(t, body)
	for _, x := range []object{back, original} {
		annotations := sub(x, "metadata", "annotations")
		delete(annotations, api.OriginalNamespaceKey)
		delete(annotations, api.OriginalNameKey)
		if len(annotations) == 0 {
			delete(sub(x, "metadata"), "annotations")
		}
	}
	if !reflect.DeepEqual(strip(back), any(original)) {
		t.Errorf("a %s does not come back:\n%s", kind, difference("", back, original))
	}
}

func strip(v any) any {
	switch v := v.(type) {
	case string:
		return strings.TrimPrefix(v, prefix)
	case object:
		for key, inner := range v {
			v[key] = strip(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = strip(inner)
		}
	}
	return v
}

// difference says where two values differ first.
func difference(at string, got, want any) string {
	g, isObject := got.(object)
	if w, also := want.(object); isObject && also {
		for key := range w {
			if !reflect.DeepEqual(g[key], w[key]) {
				return difference(at+"."+key, g[key], w[key])
			}
		}
		for key := range g {
			if _, ok := w[key]; !ok {
				return fmt.Sprintf("%s.%s is there", at, key)
			}
		}
	}
	l, isList := got.([]any)
	if w, also := want.([]any); isList && also && len(l) == len(w) {
		for i := range w {
			if !reflect.DeepEqual(l[i], w[i]) {
				return difference(fmt.Sprintf("%s[%d]", at, i), l[i], w[i])
			}
		}
	}
	return fmt.Sprintf("%s is %.200v, want %.200v", at, got, want)
}

const corpusGlob = "../../../../../shared/corpus/*.jsonl"

// corpus visits real objects, without the largest.
func corpus(t testing.TB, visit func(body []byte, o object)) {
	t.Helper()
	paths, err := filepath.Glob(corpusGlob)
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Skip("the corpus is absent")
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewReader(bytes.NewReader(b)); ; {
			line, err := s.ReadBytes('\n')
			if line = bytes.TrimSpace(line); len(line) > 0 && len(line) < 100_000 {
				o := decode(t, line)
				visit(canonical(t, o), o)
			}
			if err != nil {
				break
			}
		}
	}
}

func TestKeys_RealObjectsAreAsTheModelHasThem(t *testing.T) {
	n := 0
	corpus(t, func(body []byte, o object) {
		_, namespaced := sub(o, "metadata")["namespace"]
		equal(t, body, namespaced, knows)
		n++
	})
	t.Logf("%d objects", n)
}

// Every kind of Kubernetes, with every field.
func TestKeys_FullObjectsAreAsTheModelHasThem(t *testing.T) {
	n := 0
	for kind, types := range builtin(t) {
		name, group := kind.Split()
		namespaced := !flat.NewKeys(kind, true, nobody).ClusterScoped(kind)
		for _, typ := range types {
			for _, of := range []struct{ apiVersion, kind string }{{"v1", "Node"}, {"acme.io/v1", "Fleet"}, {"acme.io/v1", "Widget"}} {
				o, ok := fill(typ, of.apiVersion, of.kind, nil).(object)
				if !ok {
					t.Fatalf("%v is no object", typ)
				}
				o["kind"], o["apiVersion"] = name, "v1"
				if group != "" {
					o["apiVersion"] = group + "/v1"
				}
				equal(t, canonical(t, o), namespaced, knows)
				n++
			}
		}
	}
	if n < 300 {
		t.Errorf("only %d objects", n)
	}
}

// fill makes a value of a type in which every field is set. References are of a kind.
func fill(typ reflect.Type, apiVersion, kind string, above []reflect.Type) any {
	switch typ.Kind() {
	case reflect.Pointer:
		return fill(typ.Elem(), apiVersion, kind, above)
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Uint8 {
			return "Ynl0ZXM="
		}
		if element(typ).Kind() == reflect.String {
			return []any{"one", "two"}
		}
		return []any{fill(typ.Elem(), apiVersion, kind, above)}
	case reflect.Map:
		return object{"key": fill(typ.Elem(), apiVersion, kind, above), "namespace": "x"}
	case reflect.Bool:
		return true
	case reflect.String:
		return `a "name" of\ ä`
	case reflect.Struct:
	default:
		return json.Number("1")
	}
	switch typ.Name() {
	case "Time", "MicroTime", "Quantity", "IntOrString", "FieldsV1", "RawExtension", "Duration", "JSON":
		return "2026-01-02T03:04:05Z"
	}
	if slices.Contains(above, typ) || len(above) > 24 {
		return nil
	}
	above = append(slices.Clip(above), typ)
	out := object{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case key == "-":
		case key == "" && (f.Anonymous || strings.Contains(options, "inline")):
			inner, _ := fill(f.Type, apiVersion, kind, above).(object)
			for k, v := range inner {
				out[k] = v
			}
		case key == "managedFields":
		case key == "kind":
			out[key] = kind
		case key == "apiVersion":
			out[key] = apiVersion
		case key == "apiGroup" || key == "group":
			if group, _, ok := strings.Cut(apiVersion, "/"); ok {
				out[key] = group
			}
		default:
			out[key] = fill(f.Type, apiVersion, kind, above)
		}
	}
	return out
}
