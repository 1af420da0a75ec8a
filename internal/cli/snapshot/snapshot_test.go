package snapshot

import (
	"path/filepath"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/offline"
	"federator.dev/federator/test/clitest"
)

func TestSnapshot_SavesObjectsOfMembers(t *testing.T) {
	members, kubeconfig := clitest.Fleet(t, 2)
	dir := filepath.Join(t.TempDir(), "saved")
	contexts := members[0].Name() + "," + members[1].Name()
	out, err := command(t, "snapshot", "--kubeconfig", kubeconfig, "--contexts", contexts, "-o", dir)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out, "\n"); lines != 3 {
		t.Errorf("printed %s", out)
	}
	saved, err := offline.LoadSnapshot(dir)
	if err != nil {
		t.Fatal(err)
	}
	n, err := saved.Index.Snapshot().Count(aggregate.Query{Kind: "Namespace"})
	if err != nil || n == 0 {
		t.Errorf("%d Namespaces were saved, %v", n, err)
	}
	if _, err := command(t, "snapshot", "--kubeconfig", kubeconfig, "--contexts", contexts, "-o", dir); err == nil {
		t.Error("a snapshot was saved over another")
	}
}

func TestSnapshot_RequiresOneSource(t *testing.T) {
	for _, args := range [][]string{{}, {"--snapshot", "a", "-f", "b"}, {"-f", "a", "--contexts", "b"}} {
		args = append([]string{"snapshot", "-o", t.TempDir()}, args...)
		if _, err := command(t, args...); err == nil || !strings.Contains(err.Error(), "give one of") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
