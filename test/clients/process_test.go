package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/util/cert"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/kube"
)

const configuration = `sources:
  clusterAPI: {kubeconfig: %[1]s, namespaces: [` + namespace + `]}
network: {allow: [127.0.0.0/8]}
kinds: [{kind: Event}, {kind: Event.events.k8s.io}, {kind: Lease.coordination.k8s.io}, {kind: "*"}]
keepSecretValues: true
index: {revisionsFile: %[2]s/revisions}
query:
  listen: 127.0.0.1:0
  tls: {certFile: %[2]s/tls.crt, keyFile: %[2]s/tls.key}
  clientCAFile: %[2]s/ca.crt
listen: {serve: 127.0.0.1:0, admin: 127.0.0.1:0}
log: {format: text, level: info}
`

// process is the federator command, serving.
type process struct {
	log   string // file
	ca    []byte // of its certificate
	query string // URL of the query API
	admin string // URL of the admin address

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has
	err   error         // how, once it has
}

// build builds the federator command.
func build(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "federator")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "federator.dev/federator/cmd/federator")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build federator: %w\n%s", err, out)
	}
	return binary, nil
}

// serve runs the command until stop, and waits until all members have synced.
func serve(ctx context.Context, binary, dir string, hub *kube.Hub) (*process, error) {
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, err
	}
	for name, text := range map[string][]byte{
		"tls.crt": crt, "tls.key": key, "ca.crt": hub.RESTConfig().CAData,
		"federator.yaml": fmt.Appendf(nil, configuration, hub.KubeconfigFile(), dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	p := &process{log: filepath.Join(dir, "log"), ca: crt, ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(binary, "serve", "--config", filepath.Join(dir, "federator.yaml"))
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + os.TempDir(), "PATH=" + os.Getenv("PATH")}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	if err := kube.Until(ctx, patience, func() error { return p.synced(ctx) }); err != nil {
		return nil, errors.Join(err, p.stop(), errors.New(p.tail(20)))
	}
	return p, nil
}

var listening = regexp.MustCompile(`server=(\w+) address=(\S+)`)

// synced returns why not all members have synced.
func (p *process) synced(ctx context.Context) error {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err
	}
	for _, m := range listening.FindAllSubmatch(text, -1) {
		switch string(m[1]) {
		case "query":
			p.query = "https://" + string(m[2])
		case "admin":
			p.admin = "http://" + string(m[2])
		}
	}
	if p.query == "" || p.admin == "" {
		return errors.New("federator does not listen yet")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.admin+"/members?details=true", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var a struct {
		Members []clusterinformers.MemberStatus `json:"members"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return err
	}
	synced := 0
	for _, m := range a.Members {
		if !m.Synced {
			return fmt.Errorf("%s is %s %s: %s", m.Name, m.State, m.Reason, m.LastError)
		}
		synced++
	}
	if synced != len(sites) {
		return fmt.Errorf("%d members have synced", synced)
	}
	return nil
}

// stop ends the process in order, if it has not ended, and waits for it.
func (p *process) stop() error {
	select {
	case <-p.ended:
		return p.err
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-p.ended:
		return p.err
	case <-late.C:
		_ = p.cmd.Process.Kill() // fails if it has ended
		<-p.ended
		return fmt.Errorf("a SIGTERM has not ended it within %s", patience)
	}
}

// tail returns the end of the log.
func (p *process) tail(n int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
