package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/internal/execplugin"
	"federator.dev/federator/test/clitest"
)

// script writes an executable script.
func script(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil { // it is executed
		t.Fatal(err)
	}
}

// TestServe_AuthenticatesContextsByExecPlugins: named at the start, without standard input, and not
// where they are refused.
func TestServe_AuthenticatesContextsByExecPlugins(t *testing.T) {
	members, path := clitest.Fleet(t, 3)
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

// TestServe_BoundsExecPlugins has one plugin leave a process behind that holds its standard output and
// ours, and another one ask for a terminal, if there is one.
func TestServe_BoundsExecPlugins(t *testing.T) {
	members, path := clitest.Fleet(t, 2)
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	script(t, filepath.Join(filepath.Dir(path), "leaves"), fmt.Sprintf(`sleep 60 &
case "$KUBERNETES_EXEC_INFO" in *'"interactive":false'*) ;; *) exit 3;; esac
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}'
`, members[0].TokenConfig().BearerToken))
	for i, mode := range []clientcmdapi.ExecInteractiveMode{clientcmdapi.IfAvailableExecInteractiveMode, clientcmdapi.AlwaysExecInteractiveMode} {
		user := fmt.Sprint("user-", i)
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			Command: "./leaves", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: mode,
		}}
		config.Contexts[members[i].Name()].AuthInfo = user
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil || !term.IsTerminal(int(terminal.Fd())) {
		t.Logf("there is no terminal (%v): standard input is another file", err)
		terminal.Close() // of nil, too
		if terminal, err = os.Open(os.DevNull); err != nil {
			t.Fatal(err)
		}
	}
	defer terminal.Close()
	out, log, err := binary(t, terminal, "members", "--kubeconfig", path, "--contexts", "*", "--give-up-after", "2s", "--kinds", "ConfigMap")
	if err != nil {
		t.Errorf("it does not end, or what a plugin has started lives on: %v", err)
	}
	if !regexp.MustCompile(`(?m)^context/member-0 +Connected `).MatchString(out) {
		t.Errorf("the plugin has not logged in:\n%s", out)
	}
	if want := "federator runs without a terminal"; !strings.Contains(log, want) {
		t.Errorf("want %q in:\n%s", want, log)
	}
}

// binary runs the command in a process of its own until it, and every process that holds
// its output, has ended.
func binary(t *testing.T, stdin *os.File, args ...string) (out, log string, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), asBinary+"=1")
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// TestExecPlugin_GetsNoStandardInput, which may carry input for federator itself.
func TestExecPlugin_GetsNoStandardInput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = w.WriteString("a manifest\n")
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "reads")
	script(t, path, `read line; echo "got <$line>"`)
	out, log, err := binary(t, r, execplugin.Name, "--", path)
	if err != nil || out != "got <>\n" {
		t.Errorf("%v: %q, %s", err, out, log)
	}
}

// TestExecPlugin_RunnerIsThisBinary, with the documented timeout.
func TestExecPlugin_RunnerIsThisBinary(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{self, execplugin.Name, "--timeout=30s", "--"}
	if got, err := execplugin.Runner(); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if got := execplugin.Command().Flags().Lookup("timeout").DefValue; got != "30s" {
		t.Errorf("%s without a flag", got)
	}
}

// TestExecPlugin_IsKilledWithItsChildren: the command waits for every process that
// holds its standard output.
func TestExecPlugin_IsKilledWithItsChildren(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"hangs": "sleep 1000 &\nsleep 1000\n", "leaves": "sleep 1000 &\nexit 0\n"} {
		path := filepath.Join(dir, name)
		script(t, path, text)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		cmd := exec.CommandContext(ctx, self, execplugin.Name, "--timeout=300ms", "--", path)
		var out, log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &log
		err := cmd.Run()
		if ctx.Err() != nil {
			t.Errorf("%s: what it has started lives on", name)
		}
		if hangs := name == "hangs"; (err != nil) != hangs || hangs && !strings.Contains(log.String(), "killed after 300ms") {
			t.Errorf("%s: %v, %s", name, err, &log)
		}
		cancel()
	}
}
