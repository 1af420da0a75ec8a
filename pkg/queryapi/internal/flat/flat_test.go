package flat_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/flat"
)

func nobody(aggregate.Kind) (namespaced, known bool) { return false, false }

func knows(kind aggregate.Kind) (namespaced, known bool) {
	switch kind {
	case "ReplicaSet.apps", "Pod", "Widget.acme.io":
		return true, true
	case "Fleet.acme.io":
		return false, true
	}
	return false, false
}

func TestKeys_AppendWritesFlatKeys(t *testing.T) {
	for _, tt := range []struct {
		name, kind string
		namespaced bool
		body, want string
	}{
		{
			"a pod", "Pod", true,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"a":"b","federator.dev/original-name":"lie","federator.dev/original-namespace":"lie"},"name":"x","namespace":"shop","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs"},{"apiVersion":"v1","kind":"Node","name":"n1"},{"apiVersion":"acme.io/v1","kind":"Fleet","name":"f"},{"apiVersion":"acme.io/v1","kind":"Unheard","name":"u"}]},"spec":{"nodeName":"n1","priorityClassName":"","serviceAccountName":"sa","volumes":[{"ephemeral":{"volumeClaimTemplate":{"spec":{"storageClassName":"fast"}}},"name":"v"}]},"status":{"nominatedNodeName":"n2"}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":"fleet.eu_1.shop","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs"},{"apiVersion":"v1","kind":"Node","name":"fleet.eu_1.n1"},{"apiVersion":"acme.io/v1","kind":"Fleet","name":"fleet.eu_1.f"},{"apiVersion":"acme.io/v1","kind":"Unheard","name":"u"}],"annotations":{"federator.dev/original-namespace":"shop","a":"b"}},"spec":{"nodeName":"fleet.eu_1.n1","priorityClassName":"","serviceAccountName":"sa","volumes":[{"ephemeral":{"volumeClaimTemplate":{"spec":{"storageClassName":"fleet.eu_1.fast"}}},"name":"v"}]},"status":{"nominatedNodeName":"fleet.eu_1.n2"}}`,
		},
		{
			"a namespace", "Namespace", false,
			`{"apiVersion":"v1","kind":"Namespace","metadata":{"labels":{"kubernetes.io/metadata.name":"shop"},"name":"shop"}}`,
			`{"apiVersion":"v1","kind":"Namespace","metadata":{"labels":{"kubernetes.io/metadata.name":"shop"},"name":"fleet.eu_1.shop","annotations":{"federator.dev/original-name":"shop"}}}`,
		},
		{
			"an event of a node", "Event", true,
			`{"apiVersion":"v1","involvedObject":{"kind":"Node","name":"n1"},"kind":"Event","metadata":{"annotations":null,"name":"x","namespace":"default"}}`,
			`{"apiVersion":"v1","involvedObject":{"kind":"Node","name":"fleet.eu_1.n1"},"kind":"Event","metadata":{"name":"x","namespace":"fleet.eu_1.default","annotations":{"federator.dev/original-namespace":"default"}}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := flat.NewKeys(aggregate.Kind(tt.kind), tt.namespaced, knows).Append([]byte("before"), []byte(tt.body), "fleet/eu.1")
			if string(got) != "before"+tt.want {
				t.Errorf("got  %s\nwant before%s", got, tt.want)
			}
		})
	}
}

func TestKeys_FieldsOfFlatNames(t *testing.T) {
	pods, nodes, events := flat.NewKeys("Pod", true, nobody), flat.NewKeys("Node", false, nobody), flat.NewKeys("Event", true, nobody)
	for _, tt := range []struct {
		keys *flat.Keys
		path []string
		want flat.FieldType
	}{
		{pods, []string{"spec", "nodeName"}, flat.ClusterName},
		{pods, []string{"spec"}, flat.Plain},
		{pods, []string{"spec", "nodeName", "x"}, flat.Plain},
		{pods, []string{"metadata", "namespace"}, flat.Namespace},
		{pods, []string{"metadata", "name"}, flat.Plain},
		{pods, nil, flat.Plain},
		{nodes, []string{"metadata", "name"}, flat.ClusterName},
		{nodes, []string{"metadata", "namespace"}, flat.Plain},
		{events, []string{"involvedObject", "name"}, flat.ByKind},
		{events, []string{"involvedObject", "namespace"}, flat.Namespace},
		{events, []string{"involvedObject", "kind"}, flat.Plain},
		{events, []string{"involvedObject"}, flat.Plain},
		{events, []string{"metadata", "ownerReferences", "name"}, flat.ByKind},
	} {
		if got := tt.keys.Field(tt.path...); got != tt.want {
			t.Errorf("%v is %d, want %d", tt.path, got, tt.want)
		}
	}
}

func FuzzSplitIsTheInverseOfJoin(f *testing.F) {
	for _, s := range []string{"fleet.eu-1.shop", "a.b_c.d.e:f/g", "a.b.", "a..b", ".a.b", "a.b", "A.b.c", "a.b__c.d", "a.b_.d", "a_b.c.d", "a/b.c.d", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		member, name, ok := flat.Split(s)
		if ok && flat.Join(member, name) != s {
			t.Errorf("%q is %s %s, whose flat name is %q", s, member, name, flat.Join(member, name))
		}
		if again, same, ok := flat.Split(flat.Join("fleet/eu.1", s)); s != "" && (!ok || again != "fleet/eu.1" || same != s) {
			t.Errorf("%q of fleet/eu.1 comes back as %q of %q", s, same, again)
		}
	})
}

// malformed are objects of kinds whose fields are not what they are called.
var malformed = []string{
	`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":"boom","name":1,"namespace":[],"ownerReferences":{"kind":{},"name":"x"}},"spec":"none"}`,
	`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":[],"namespace":{"a":"b"},"ownerReferences":"x"},"spec":{"nodeName":{"nodeName":"x"},"volumes":[[[[]]],"x",null,{"ephemeral":[]}]},"status":null}`,
	`{"apiVersion":"v1","kind":"Pod","metadata":"x","spec":{"nodeName":["a"],"priorityClassName":null}}`,
	`{"apiVersion":"v1","kind":"Pod","metadata":{},"spec":{}}`,
	`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{}}}`,
	`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"federator.dev/original-name":"a","federator.dev/original-namespace":"b"},"namespace":"x"}}`,
	`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"federator.dev/original-name":{"x":"y"},"z":[]},"namespace":"x"}}`,
	`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"\\\"\\u0041\\\\","ownerReferences":[{"apiVersion":"/","kind":"","name":""},{"apiVersion":"a/b/c","kind":"Node","name":"n"},{"kind":"\\u004eode","name":"n"}]}}`,
	`{"a":{}}`, `{}`, `[]`, `""`, `null`, `{"metadata":`, `{"metadata":{"namespace":"x"`, `{"metadata":{"namespace":"x"}`, `{"metadata":{"annotations"}}`, `{"metadata":{"a":}}`,
}

// A body is never hidden, whatever is in it, and what is JSON stays JSON.
func FuzzAppendHidesNothing(f *testing.F) {
	for _, s := range malformed {
		f.Add([]byte(s))
	}
	keys := []*flat.Keys{flat.NewKeys("Pod", true, knows), flat.NewKeys("Event", true, knows), flat.NewKeys("PersistentVolume", false, knows), flat.NewKeys("Widget.acme.io", false, nobody)}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, k := range keys {
			k.Append(nil, raw, member)
		}
		var v any
		if json.Unmarshal(raw, &v) != nil {
			return
		}
		body := canonical(t, v)
		for _, k := range keys {
			if bytes.Contains(body, []byte("federator.dev/original-")) || bytes.Contains(body, []byte(prefix)) {
				continue // of these it takes something
			}
			out := k.Append(nil, body, member)
			var back any
			if err := json.Unmarshal(out, &back); err != nil {
				t.Fatalf("%s becomes %s: %v", body, out, err)
			}
			if o, ok := back.(object); ok {
				tidy(o)
			}
			want := v
			if o, ok := want.(object); ok {
				tidy(o)
			}
			if got := canonical(t, strip(back)); !bytes.Equal(got, canonical(t, want)) {
				t.Fatalf("%s becomes %s, and back %s", body, out, got)
			}
		}
	})
}

// tidy takes from an object the annotations that only we give, and annotations that
// are none.
func tidy(o object) {
	meta := sub(o, "metadata")
	if annotations, ok := meta["annotations"].(object); ok || meta["annotations"] == nil {
		delete(annotations, api.OriginalNamespaceKey)
		delete(annotations, api.OriginalNameKey)
		if len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
}

// Fields that are not shaped as their kind has them stay as they are.
func TestKeys_MalformedReferencesStay(t *testing.T) {
	pods := flat.NewKeys("Pod", true, knows)
	for _, body := range malformed[:5] {
		got := decode(t, pods.Append(nil, []byte(body), member))
		want := decode(t, []byte(body))
		tidy(got)
		tidy(want)
		if !bytes.Equal(canonical(t, got), canonical(t, want)) {
			t.Errorf("%s becomes %s", canonical(t, want), canonical(t, got))
		}
	}
	for _, body := range malformed[len(malformed)-8:] {
		if got := pods.Append([]byte("before"), []byte(body), member); string(got) != "before"+body {
			t.Errorf("%s becomes %s", body, got)
		}
	}
}
