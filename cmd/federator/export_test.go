package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"federator.dev/federator/internal/export"
	"federator.dev/federator/test/clitest"
)

// TestExport_WritesFiles: a row of each object, in both formats, of one revision.
func TestExport_WritesFiles(t *testing.T) {
	r := serveTwoMembers(t)
	out, err := command(t, "export", "cm", "--kubeconfig", r.kubeconfig, "--columns", "key=.data.key,names:list=.metadata.ownerReferences[*].name")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(out) {
		var row struct {
			Member, Namespace, Name, UID, Created string
			Labels                                map[string]string
			Data                                  int64
			Key                                   *string
			Names                                 []string
			Redacted                              []string
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		names = append(names, row.Member+"/"+row.Name)
		if row.Namespace != "default" || row.UID == "" || row.Created == "" {
			t.Errorf("%+v", row)
		}
		if owned := row.Name == "owned"; owned != slices.Equal(row.Names, []string{"a"}) {
			t.Errorf("%s: owners %v", row.Name, row.Names)
		}
	}
	if want := []string{"context/member-0/a", "context/member-0/b", "context/member-0/owned", "context/member-1/c"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}

	dir := filepath.Join(t.TempDir(), "out")
	args := []string{"export", "configmaps", "--kubeconfig", r.kubeconfig, "-o", "parquet", "-d", dir}
	if _, err := command(t, args...); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(dir, "configmaps.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	opened, err := parquet.OpenFile(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	text, ok := opened.Lookup(export.SummaryKey)
	var s export.Summary
	if err := json.Unmarshal([]byte(text), &s); err != nil || !ok || s.Rows != 4 || opened.NumRows() != 4 || s.Kind != "ConfigMap" || len(s.Members) != 2 {
		t.Errorf("%s: %v", text, err)
	}
	var m export.Manifest
	if err := json.Unmarshal([]byte(clitest.ReadFile(t, filepath.Join(dir, export.ManifestName))), &m); err != nil || m.Revision != s.Revision || len(m.Files) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := command(t, args...); !errors.Is(err, os.ErrExist) {
		t.Errorf("again: %v", err)
	}
	if _, err := command(t, append(args, "--overwrite")...); err != nil {
		t.Errorf("with --overwrite: %v", err)
	}
	for _, args := range [][]string{
		{"nopes"},
		{"configmaps", "secrets"},
		{"configmaps", "-o", "csv"},
		{"configmaps", "--columns", "1x=.data"},
		{"configmaps", "--columns", "x:date=.data"},
		{"configmaps", "--columns", "x=data"},
		{"configmaps", "--columns", "x=.data["},
		{"configmaps", "--columns", "pods/x=.data"},
		{"configmaps", "--columns", "name=.data"},
		{"configmaps", "--members", "x"},
	} {
		if out, err := command(t, append([]string{"export", "--kubeconfig", r.kubeconfig}, args...)...); err == nil || out != "" {
			t.Errorf("%v: %q, %v", args, out, err)
		} else {
			t.Log(err)
		}
	}
}
