package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/test/kube/assets"
)

// TestKubectl_FindsThePlugin: the real kubectl runs the binary, linked as kubectl-federator, with its arguments, and completes them.
func TestKubectl_FindsThePlugin(t *testing.T) {
	built, err := assets.Ensure(t.Context(), assets.Options{Progress: os.Stderr}, assets.Kubectl)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	for _, name := range []string{pluginName, completionName} {
		if err := os.Symlink(self, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	r := serveTwoMembers(t)
	home := t.TempDir()
	kubectl := func(args ...string) (stdout, stderr string, err error) {
		cmd := exec.CommandContext(t.Context(), built.Binary(assets.Kubectl), args...)
		cmd.Env = append(os.Environ(), asBinary+"=1", "PATH="+path, "HOME="+home, "KUBECONFIG="+r.kubeconfig)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err = cmd.Run()
		return out.String(), errs.String(), err
	}
	if out, _, err := kubectl("plugin", "list"); err != nil || !strings.Contains(out, filepath.Join(path, pluginName)) {
		t.Errorf("plugin list: %v, %s", err, out)
	}
	if out, errs, err := kubectl("federator", "count", "configmaps", "--by", "member"); err != nil || !strings.Contains(out, "context/member-1") {
		t.Errorf("count: %v, %s%s", err, out, errs)
	}
	out, _, err := kubectl("federator", "export", "--help")
	if err != nil || !strings.Contains(out, "kubectl federator export RESOURCE... [flags]") || !strings.Contains(out, "  kubectl federator export pods") || strings.Contains(out, "\n  federator ") || !strings.Contains(out, "--request-timeout") {
		t.Errorf("help: %v, %s", err, out)
	}
	_, errs, err := kubectl("federator", "count", "nopes")
	if failed, ok := errors.AsType[*exec.ExitError](err); !ok || failed.ExitCode() != 1 || !strings.HasPrefix(errs, "kubectl federator: ") {
		t.Errorf("an error: %v, %q", err, errs)
	}
	if out, _, err := kubectl("__complete", "federator", "count", "configm"); err != nil || !slices.Contains(strings.Split(out, "\n"), "configmaps") {
		t.Errorf("completion: %v, %s", err, out)
	}

	// kubectl's own flags, in place of a context.
	file, err := clientcmd.LoadFromFile(r.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	fleet := file.Clusters["fleet"]
	ca := filepath.Join(home, "ca.pem")
	if err := os.WriteFile(ca, fleet.CertificateAuthorityData, 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(home, "none")
	given := []string{"--kubeconfig", none, "--server", fleet.Server, "--certificate-authority", ca, "--token", file.AuthInfos["fleet"].Token}
	if err := os.WriteFile(none, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, err := kubectl(append([]string{"federator", "export", "configmaps"}, given...)...); err != nil || strings.Count(out, "\n") != 4 {
		t.Errorf("with --server: %v, %s%s", err, out, errs)
	}
	insecure := []string{"federator", "count", "configmaps", "--context", "other", "--cluster", "fleet", "--user", "fleet", "--insecure-skip-tls-verify"}
	file.Clusters["fleet"].CertificateAuthorityData = nil
	file.Contexts["other"] = file.Contexts["fleet"].DeepCopy()
	file.Contexts["other"].Cluster = "nowhere"
	other := filepath.Join(home, "other")
	if err := clientcmd.WriteToFile(*file, other); err != nil {
		t.Fatal(err)
	}
	if out, errs, err := kubectl(append(insecure, "--kubeconfig", other)...); err != nil || !strings.Contains(out, "4") {
		t.Errorf("with --cluster: %v, %s%s", err, out, errs)
	}
	if _, errs, err := kubectl("federator", "count", "configmaps", "--request-timeout", "soon"); err == nil || !strings.Contains(errs, "--request-timeout") {
		t.Errorf("a bad timeout: %v, %s", err, errs)
	}
	// Without kubectl there are none of its flags.
	if _, err := command(t, "count", "configmaps", "--token", "x"); err == nil || !strings.Contains(err.Error(), "unknown flag") {
		t.Errorf("as federator: %v", err)
	}
}
