package ui

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/process"
)

// TestScale plays the stories of a large fleet, of simulated members: many rows, many members. The
// sizes can be set: MEMBERS, PODS (of each), CHURN (changes a second), and POLICIES=off. With
// FIGURES=1 it plays what measures, and prints it.
func TestScale(t *testing.T) {
	found := require(t)
	pods := 1000
	if os.Getenv("UI") == "full" {
		pods = 5000
	}
	s := startSimulated(t, number(t, "MEMBERS", 20), number(t, "PODS", pods), number(t, "CHURN", 0))
	of := world{
		URL: s.url, Screenshots: os.Getenv("UI_SCREENSHOTS"), Tokens: map[string]string{"local": s.token},
		Members: s.members, Pods: s.members * s.pods, PID: s.federator.PID(),
	}
	project := "scale"
	if os.Getenv("FIGURES") != "" {
		project = "figures"
	}
	if file := os.Getenv("HOLD"); file != "" {
		hold(t, file, of)
		return
	}
	play(t, found, project, of)
}

func number(t *testing.T, name string, standard int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// simulated is a federator of simulated members, without a hub.
type simulated struct {
	members, pods int
	federator     *process.Process
	url, token    string
}

const simulatedConfiguration = `sources:
  contexts: {path: %q, names: ["*"]}
network: {allow: [127.0.0.0/8]}
query: {listen: %s, kubeconfig: %q}
policies: {library: %t}
persistence: {off: true}
listen: {serve: 127.0.0.1:0, admin: ""}
`

func startSimulated(t *testing.T, members, pods, churn int) *simulated {
	t.Helper()
	dir := t.TempDir()
	contexts := startMembers(t, dir, members, pods, churn)
	address, kubeconfig := kube.FreeAddress(t), filepath.Join(dir, "query.kubeconfig")
	s := &simulated{members: members, pods: pods, url: "https://" + address}
	err := os.WriteFile(filepath.Join(dir, "federator.yaml"), fmt.Appendf(nil, simulatedConfiguration, contexts, address, kubeconfig, os.Getenv("POLICIES") != "off"), 0o600)
	if err == nil {
		s.federator, err = process.Serve(build(t), dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.federator.Stop(30 * time.Second); err != nil {
			t.Errorf("federator: %v", err)
		}
	})
	insecure := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // of its own certificate
	defer insecure.CloseIdleConnections()
	err = kube.Until(t.Context(), 5*time.Minute, func() error {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return err
		}
		s.token = config.BearerToken
		return s.loaded(&http.Client{Transport: insecure, Timeout: 10 * time.Second})
	})
	if err != nil {
		log, _ := os.ReadFile(s.federator.LogFile)
		t.Fatalf("%v\n%s", err, log[max(0, len(log)-4000):])
	}
	return s
}

// loaded is an error until all members are synced and all pods are there.
func (s *simulated) loaded(client *http.Client) error {
	r, err := http.NewRequest(http.MethodGet, s.url+"/query/v1/count?resource=pods&require=synced", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var count struct{ Total int }
	if err := json.NewDecoder(resp.Body).Decode(&count); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || count.Total != s.members*s.pods {
		return fmt.Errorf("%s: %d pods of %d", resp.Status, count.Total, s.members*s.pods)
	}
	return nil
}

// startMembers runs simulated members in a process of their own, with more arguments, and returns a kubeconfig of them.
func startMembers(t *testing.T, dir string, members, pods, churn int, more ...string) string {
	t.Helper()
	binary, kubeconfig := filepath.Join(dir, "simfleet"), filepath.Join(dir, "contexts.kubeconfig")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "federator.dev/federator/test/sim/cmd/simfleet").CombinedOutput(); err != nil {
		t.Fatalf("build simfleet: %v\n%s", err, out)
	}
	args := []string{"--members", strconv.Itoa(members), "--pods", strconv.Itoa(pods), "--nodes", "10", "--churn", strconv.Itoa(churn), "--stamp", "--corpus", "", "--kubeconfig", kubeconfig}
	cmd := exec.Command(binary, append(args, more...)...)
	cmd.Stderr = io.Discard
	commands, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		commands.Close()
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Errorf("simulated members: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "READY") {
		t.Fatalf("simulated members: %q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
	return kubeconfig
}
