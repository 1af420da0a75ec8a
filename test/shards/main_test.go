package shards

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"k8s.io/klog/v2"

	"federator.dev/federator/test/kube"
)

// shared is the hub and the members, which record what is written to them.
var shared = kube.Shared{Options: kube.Options{Members: size(), Audit: true}}

// built is the directory of the command.
var built string

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{})
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if built, err = os.MkdirTemp("", "shards-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(built)
	shared.Prepare = prepare
	return shared.Main(m)
}

// size is the number of members: what SHARDS says, or three.
func size() int {
	if n, err := strconv.Atoi(os.Getenv("SHARDS")); err == nil && n >= 3 {
		return n
	}
	return 3
}

// early is how many of the members have label wave=early.
func early() int { return size() - size()/2 }

func memberName(i int) string { return fmt.Sprint("fleet/member-", i+1) }

// prepare builds the command, and has the hub describe the members.
func prepare(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", built, "federator.dev/federator/cmd/federator").CombinedOutput(); err != nil {
		return fmt.Errorf("build federator: %w\n%s", err, out)
	}
	hub := shared.Fleet.Hub
	if err := hub.InstallCRDs(ctx, "../../charts/federator/crds"); err != nil {
		return err
	}
	if err := hub.InstallCRDs(ctx, "../../pkg/hub/testdata/openreports"); err != nil {
		return err
	}
	for i, m := range shared.Fleet.Members {
		if err := hub.Register(ctx, cluster(i, m)); err != nil {
			return err
		}
	}
	return nil
}

// cluster is how the hub describes a member.
func cluster(i int, m *kube.ControlPlane) kube.Cluster {
	c := kube.Cluster{Namespace: "fleet", Name: fmt.Sprint("member-", i+1), Kubeconfig: m.Kubeconfig(), Labels: map[string]string{"wave": "late"}}
	if i < early() {
		c.Labels["wave"] = "early"
	}
	return c
}
