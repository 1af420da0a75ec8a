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

	"k8s.io/client-go/util/cert"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/process"
)

const configuration = `sources:
  kubeconfig: %[1]s
  clusterAPI: {namespaces: [` + namespace + `]}
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

// federator is the federator command, serving.
type federator struct {
	*process.Process
	ca    []byte // of its certificate
	query string // URL of the query API
	admin string // URL of the admin address
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
func serve(ctx context.Context, binary, dir string, hub *kube.Hub) (*federator, error) {
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
	served, err := process.Serve(binary, dir)
	if err != nil {
		return nil, err
	}
	p := &federator{Process: served, ca: crt}
	if err := kube.Until(ctx, patience, func() error { return p.synced(ctx) }); err != nil {
		return nil, errors.Join(err, p.stop(), errors.New(p.Tail(20)))
	}
	return p, nil
}

// synced returns why not all members have synced.
func (p *federator) synced(ctx context.Context) error {
	query, err1 := p.Address("query")
	admin, err2 := p.Address("admin")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	p.query, p.admin = "https://"+query, "http://"+admin
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
func (p *federator) stop() error { return p.Stop(patience) }
