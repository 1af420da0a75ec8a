package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/internal/kubeconfigfile"
	"federator.dev/federator/internal/rows"
	"federator.dev/federator/test/clitest"
)

// TestExport_ServerKilled: a server that is killed while it answers leaves an error, and no file.
func TestExport_ServerKilled(t *testing.T) {
	members, sources := clitest.Fleet(t, 1)
	rng := rand.New(rand.NewPCG(1, 2))
	const objects = 3_000
	for i := range objects {
		o := clitest.ConfigMap(fmt.Sprintf("c-%d", i))
		noise := make([]byte, 500)
		for j := range noise {
			noise[j] = byte(rng.Uint32())
		}
		o.Annotations = map[string]string{"noise": fmt.Sprintf("%x", noise)}
		if err := members[0].Create(o); err != nil {
			t.Fatal(err)
		}
	}
	server, kubeconfig := serveInProcess(t, sources)
	clitest.Eventually(t, "all is there", func() error {
		out, err := command(t, "count", "configmaps", "--kubeconfig", kubeconfig)
		if err == nil && !strings.Contains(out, fmt.Sprint(objects)) {
			return clitest.ErrNotYet
		}
		return err
	})
	const part = 300 << 10
	through := killAfter(t, kubeconfig, part, func() {
		if err := server.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = server.Wait()
	})
	dir := t.TempDir()
	args := []string{"export", "configmaps", "--columns", "noise=.metadata.annotations.noise", "--kubeconfig", through}
	for _, format := range []string{"parquet", "ndjson"} {
		whole := filepath.Join(dir, "whole", format)
		if _, err := command(t, append(args, "--kubeconfig", kubeconfig, "-o", format, "-d", whole)...); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(whole, "configmaps."+format)); err != nil || info.Size() < 2*part {
			t.Fatalf("%v, %v", info, err)
		}
	}
	_, err := command(t, append(args, "-o", "parquet", "-d", filepath.Join(dir, "cut"))...)
	if !errors.Is(err, rows.ErrIncomplete) {
		t.Errorf("%v", err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "cut"))
	if err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// serveInProcess runs `federator serve` in a process of its own, which the test may kill, and returns a kubeconfig of it.
func serveInProcess(t *testing.T, sources string) (*exec.Cmd, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self, "serve", "--kubeconfig", sources, "--contexts", "member-0", "--kinds", "ConfigMap",
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--query", "127.0.0.1:0", "--query-kubeconfig", kubeconfig)
	cmd.Env = append(os.Environ(), asBinary+"=1", "XDG_CONFIG_HOME="+t.TempDir())
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if t.Failed() {
			t.Logf("log:\n%s", &log)
		}
	})
	clitest.Eventually(t, "a kubeconfig is written", func() error {
		_, err := os.Stat(kubeconfig)
		return err
	})
	return cmd, kubeconfig
}

// killAfter returns a kubeconfig through a proxy, which calls kill once so many bytes of answers have passed, and lets none pass
// after that.
func killAfter(t *testing.T, kubeconfig string, most int64, kill func()) string {
	t.Helper()
	file, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	fleet := file.Clusters[kubeconfigfile.FleetContext]
	u, err := url.Parse(fleet.Server)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var pumps sync.WaitGroup
	t.Cleanup(pumps.Wait)
	t.Cleanup(func() { listener.Close() })
	target := u.Host
	pumps.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			pumps.Go(func() { _, _ = io.Copy(server, client) })
			pumps.Go(func() {
				if n, _ := io.CopyN(client, server, most); n == most {
					kill()
				}
				client.Close()
				server.Close()
			})
		}
	})
	u.Host = listener.Addr().String()
	fleet.Server = u.String()
	through := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, through); err != nil {
		t.Fatal(err)
	}
	return through
}
