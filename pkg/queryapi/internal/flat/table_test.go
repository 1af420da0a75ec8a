package flat_test

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/flat"
)

// custom are the groups of kinds in the table that are none of Kubernetes' own.
var custom = []string{".gateway.networking.k8s.io", ".snapshot.storage.k8s.io"}

// Each field of the table is one of Kubernetes' types, and is what keys say of it.
func TestTable_FieldsExist(t *testing.T) {
	rows := map[string][]flat.Row{}
	for _, row := range flat.Table() {
		rows[row.Subject] = append(rows[row.Subject], row)
	}
	types := builtin(t)
	var check func(kind aggregate.Kind, path []string, row flat.Row) int
	check = func(kind aggregate.Kind, path []string, row flat.Row) int {
		path = append(slices.Clip(path), strings.Split(strings.ReplaceAll(row.Field, "[]", ""), ".")...)
		keys := flat.NewKeys(kind, true, nobody)
		switch {
		case row.Shape:
			n := 0
			for _, r := range rows[row.Target] {
				n += check(kind, path, r)
			}
			return n
		case row.Target == flat.Kind:
			if keys.Field(append(slices.Clip(path), "name")...) != flat.ByKind || keys.Field(append(slices.Clip(path), "namespace")...) != flat.Namespace {
				t.Errorf("%s %v is no reference for its keys", kind, path)
			}
		case row.Target == "Namespace":
			if keys.Field(path...) != flat.Namespace {
				t.Errorf("%s %v is no namespace for its keys", kind, path)
			}
		case keys.Field(path...) != flat.ClusterName:
			t.Errorf("%s %v is no name for its keys", kind, path)
		case !isCustom(row.Target) && !keys.ClusterScoped(aggregate.Kind(row.Target)):
			t.Errorf("%s %v is the name of a %s, which has namespaces", kind, path, row.Target)
		}
		if isCustom(string(kind)) {
			return 1
		}
		if !slices.ContainsFunc(types[kind], func(typ reflect.Type) bool { return has(typ, path) }) {
			t.Errorf("no version of %s has a field %s", kind, strings.Join(path, "."))
		}
		return 1
	}
	n := 0
	for of, fields := range rows {
		if _, ok := types[aggregate.Kind(of)]; !ok && !isCustom(of) {
			continue // a shape
		}
		for _, row := range fields {
			n += check(aggregate.Kind(of), nil, row)
		}
	}
	if n < 150 {
		t.Errorf("only %d fields follow", n)
	}
}

func isCustom(kind string) bool {
	return slices.ContainsFunc(custom, func(group string) bool { return strings.HasSuffix(kind, group) })
}

// has reports whether a type has a field at a path.
func has(typ reflect.Type, path []string) bool {
	found := false
	places(typ, nil, nil, func(p place) { found = found || slices.Equal(p.path, path) })
	return found
}

const docs = "../../../../docs/flat.md"

// The document has the table. FLAT_DOCS=write writes it there.
func TestTable_DocumentHasTheTable(t *testing.T) {
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- table -->\n", "<!-- /table -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, also := strings.Cut(rest, end)
	if !ok || !also {
		t.Fatalf("%s has no place for the table", docs)
	}
	want := before + begin + "\n" + markdown() + "\n" + end + after
	if want == string(text) {
		return
	}
	if os.Getenv("FLAT_DOCS") == "write" {
		if err := os.WriteFile(docs, []byte(want), 0o644); err != nil { // a document
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s has another table: FLAT_DOCS=write go test ./pkg/queryapi/internal/flat -run Document writes this one\n%s", docs, markdown())
}

// markdown writes the table for people.
func markdown() string {
	var b strings.Builder
	b.WriteString("| in | field | becomes the flat name of |\n|---|---|---|\n")
	last := "-"
	for _, row := range flat.Table() {
		of := ""
		if row.Subject != last {
			if of, last = "`"+row.Subject+"`", row.Subject; row.Subject == "" {
				of = "every kind"
			}
		}
		to := "`" + row.Target + "`"
		switch {
		case row.Target == flat.Kind:
			to = "the namespace and, where the kind has no namespaces, the name"
		case row.Shape:
			to = "as in " + to
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s |\n", of, row.Field, to)
	}
	return b.String()
}
