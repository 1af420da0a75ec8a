package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/internal/cli/export"
	"federator.dev/federator/internal/cli/queryclient"
)

// buildDuckDB builds the program of test/duckdb, which needs a C compiler, and returns where it is. Stories have
// deadlines, but what is downloaded for it the first time is as slow as the network.
func buildDuckDB(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "duckdb")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-w -s", "-o", path, ".")
	build.Dir, build.Env = filepath.Join("..", "duckdb"), append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build test/duckdb: %v\n%s", err, out)
	}
	return path
}

// askDuckDB returns the rows of the answer to a query.
func (s *story) askDuckDB(ctx context.Context, query string) (rows [][]any, err error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, s.duckdb, query)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", query, err, &stderr)
	}
	for line := range bytes.Lines(out) {
		var row []any
		if err := json.Unmarshal(line, &row); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// runExport runs `federator export` with a kubeconfig.
func runExport(ctx context.Context, kubeconfig string, args ...string) (stderr string, err error) {
	var out bytes.Buffer
	root := &cobra.Command{Use: "federator", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(export.Command("e2e"))
	root.SetArgs(append([]string{"export", "--kubeconfig", kubeconfig}, args...))
	root.SetErr(&out)
	err = root.ExecuteContext(ctx)
	return out.String(), err
}

// exportFleet is the story's command export.
func exportFleet(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error {
	file, rest, err := s.asker(args)
	if err != nil {
		return err
	}
	stderr, err := runExport(ctx, file, append(rest, "-o", "parquet", "--overwrite")...)
	if err != nil {
		stderr += err.Error() + "\n"
	}
	fmt.Fprint(ts.Stderr(), stderr)
	return err
}

// sameGroups compares how DuckDB groups an exported file with how `federator count` groups the objects.
func sameGroups(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error {
	file, rest, err := s.asker(args)
	if err != nil {
		return err
	}
	if len(rest) < 3 {
		return errors.New("a file, a resource, and what to group by are missing")
	}
	path, resource := ts.MkAbs(rest[0]), rest[1]
	flags := queryclient.Flags{Kubeconfig: file, Version: "e2e"}
	client, err := flags.Client()
	if err != nil {
		return err
	}
	query, expressions := url.Values{"resource": {resource}}, []string{}
	for _, by := range rest[2:] {
		group, expression, ok := strings.Cut(by, "=")
		if !ok {
			return fmt.Errorf("%q is not GROUP=EXPRESSION", by)
		}
		query.Add("groupBy", group)
		expressions = append(expressions, "coalesce("+expression+", '')")
	}
	body, err := client.Get(ctx, "/query/v1/count", query, "application/json")
	if err != nil {
		return err
	}
	var counted struct {
		Total  int
		Groups []struct {
			Key   []string
			Count int
		}
	}
	if err := json.Unmarshal(body, &counted); err != nil {
		return err
	}
	want, got := map[string]int{}, map[string]int{}
	for _, g := range counted.Groups {
		want[strings.Join(g.Key, "\t")] = g.Count
	}
	rows, err := s.askDuckDB(ctx, fmt.Sprintf("SELECT %s, count(*) FROM read_parquet('%s') GROUP BY ALL", strings.Join(expressions, ", "), path))
	if err != nil {
		return err
	}
	total := 0
	for _, r := range rows {
		var key []string
		for _, v := range r[:len(r)-1] {
			key = append(key, fmt.Sprint(v))
		}
		n := int(r[len(r)-1].(float64))
		got[strings.Join(key, "\t")] = n
		total += n
	}
	if !maps.Equal(got, want) || total != counted.Total || total == 0 {
		return fmt.Errorf("DuckDB: %d: %v, federator count: %d: %v", total, got, counted.Total, want)
	}
	ts.Logf("%d objects in %d groups", total, len(got))
	return nil
}

// TestExport_IsOfOneRevision: while writes go on, all files of an export are what the fleet had at the one revision that they name.
func TestExport_IsOfOneRevision(t *testing.T) {
	r := newQueryRig(t, "export-revision", 2)
	r.exact(t)
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer cancel()
	for i, c := range r.members {
		client := c.Client()
		writers.Go(func() { writePairs(ctx, client, fmt.Sprintf("pair-%d", i)) })
	}
	config, err := r.api.config("fleet", "exporter", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := r.api.kubeconfig(file, "fleet", config); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	revisions := map[string]bool{}
	for n := range 5 {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(n))
		if _, err := runExport(t.Context(), file, "configmaps", "serviceaccounts", "namespaces", "-d", dir); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "export.json"))
		if err != nil {
			t.Fatal(err)
		}
		var manifest struct{ Revision string }
		if err := json.Unmarshal(text, &manifest); err != nil {
			t.Fatal(err)
		}
		revisions[manifest.Revision] = true
		at := metav1.ListOptions{ResourceVersion: manifest.Revision, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
		maps, err := client.CoreV1().ConfigMaps("").List(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		accounts, err := client.CoreV1().ServiceAccounts("").List(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := range maps.Items {
			want = append(want, "configmap "+keyOf(&maps.Items[i].ObjectMeta))
		}
		for i := range accounts.Items {
			want = append(want, "serviceaccount "+keyOf(&accounts.Items[i].ObjectMeta))
		}
		var got []string
		for _, kind := range []string{"configmap", "serviceaccount"} {
			text, err := os.ReadFile(filepath.Join(dir, kind+"s.ndjson"))
			if err != nil {
				t.Fatal(err)
			}
			for line := range bytes.Lines(text) {
				var o struct{ Member, Namespace, Name, UID string }
				if err := json.Unmarshal(line, &o); err != nil {
					t.Fatal(err)
				}
				got = append(got, strings.Join([]string{kind, o.Member, o.Namespace, o.Name, o.UID}, " "))
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("revision %s: exported %d, listed %d:\n%q\n%q", manifest.Revision, len(got), len(want), got, want)
		}
		if err := until(t.Context(), patience, func() error { // something is written until the next
			if fmt.Sprint(uint64(r.story.fed.index.Snapshot().Revision())) == manifest.Revision {
				return errors.New("nothing was written")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(revisions) != 5 {
		t.Errorf("%d revisions of 5 exports", len(revisions))
	}
}

func keyOf(m *metav1.ObjectMeta) string {
	return strings.Join([]string{m.Annotations["federator.dev/member"], m.Namespace, m.Name, string(m.UID)}, " ")
}

// writePairs creates a ConfigMap and a ServiceAccount, and deletes every second, until ctx ends.
func writePairs(ctx context.Context, client kubernetes.Interface, prefix string) {
	for i := 0; ctx.Err() == nil; i++ {
		meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", prefix, i)}
		_, _ = client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
		_, _ = client.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
		if i%2 == 1 {
			_ = client.CoreV1().ConfigMaps("default").Delete(ctx, meta.Name, metav1.DeleteOptions{})
			_ = client.CoreV1().ServiceAccounts("default").Delete(ctx, meta.Name, metav1.DeleteOptions{})
		}
	}
}
