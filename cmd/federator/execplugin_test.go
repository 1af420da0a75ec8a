package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// script writes an executable.
func script(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
}

// TestContextsLogInByExecPlugins: named at the start, without standard input, and not
// where they are refused.
func TestContextsLogInByExecPlugins(t *testing.T) {
	members, path := fleetOf(t, 3)
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	token := members[0].TokenConfig().BearerToken
	script(t, filepath.Join(dir, "login"), fmt.Sprintf(`test -n "$KUBERNETES_EXEC_INFO" || exit 3
if read line; then echo "standard input is there" >&2; exit 4; fi
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}'
`, token))
	script(t, filepath.Join(dir, "fails"), "echo 'log in first' >&2; exit 5\n")
	plugin := func(command string) *clientcmdapi.AuthInfo {
		return &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			Command: command, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
		}}
	}
	config.AuthInfos["login"], config.AuthInfos["fails"] = plugin("./login"), plugin("./fails")
	config.Contexts["member-0"].AuthInfo = "login"
	config.Contexts["member-1"].AuthInfo = "fails"
	insecure := config.Clusters[config.Contexts["member-2"].Cluster]
	insecure.InsecureSkipTLSVerify, insecure.CertificateAuthorityData, insecure.CertificateAuthority = true, nil, ""
	config.Clusters["own"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1/fleet"}
	config.Contexts["own"] = &clientcmdapi.Context{Cluster: "own", AuthInfo: "login"}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}

	var out, log bytes.Buffer
	args := []string{"members", "--kubeconfig", path, "--contexts", "*", "--give-up-after", "2s", "--kinds", "ConfigMap"}
	if err := execute(t.Context(), &out, &log, args...); err != nil {
		t.Fatal(err)
	}
	state := func(member, want string) {
		t.Helper()
		for _, line := range strings.Split(out.String(), "\n") {
			if strings.HasPrefix(line, "context/"+member) {
				if !strings.Contains(line, want) {
					t.Errorf("want %q of %s: %s", want, member, line)
				}
				return
			}
		}
		t.Errorf("no line of %s:\n%s", member, &out)
	}
	state("member-0", "Connected")
	state("member-1", "ExecPluginFailed")
	state("member-2", "Connected")
	if strings.Contains(out.String(), "context/own") {
		t.Error("federator follows its own API")
	}
	for _, want := range []string{filepath.Join(dir, "login"), filepath.Join(dir, "fails"), "insecure-skip-tls-verify is set"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not name %q:\n%s", want, &log)
		}
	}

	out.Reset()
	if err := execute(t.Context(), &out, &log, append(args, "--no-exec")...); err != nil {
		t.Fatal(err)
	}
	state("member-0", "Refused")
	state("member-0", "ExecPlugin")
	state("member-2", "Connected")
}

// TestExecPluginsAreEndedWithWhatTheyStart: whoever holds standard output open is
// waited for.
func TestExecPluginsAreEndedWithWhatTheyStart(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"hangs": "sleep 1000 &\nsleep 1000\n", "leaves": "sleep 1000 &\nexit 0\n"} {
		path := filepath.Join(dir, name)
		script(t, path, text)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		cmd := exec.CommandContext(ctx, self, pluginCommand, "--timeout=300ms", "--", path)
		var out, log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &log
		err := cmd.Run()
		if ctx.Err() != nil {
			t.Errorf("%s: what it has started lives on", name)
		}
		if hangs := name == "hangs"; (err != nil) != hangs || hangs && !strings.Contains(log.String(), "ended after 300ms") {
			t.Errorf("%s: %v, %s", name, err, &log)
		}
		cancel()
	}
}
