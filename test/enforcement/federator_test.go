package enforcement

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/process"
)

// server is the federator command, serving.
type server struct{ *process.Process }

// configuration is that of the chart, but for the addresses of members and repositories, and for
// the patience with members that are away.
const configuration = `sources:
  kubeconfig: %s
  clusterAPI: {namespaces: [fleet]}
network: {allow: [127.0.0.0/8]}
persistence: {directory: "%s"}
giveUpAfter: 10s
query:
  listen: 127.0.0.1:0
  tls: {certFile: %s, keyFile: %s}
policies:
  hub: true
  library: true
  namespace: federator
  secretNamespaces: [federator]
  allowFile: true
  webhook: {listen: 127.0.0.1:0, secretFile: %s}
  signers: {%s}
  corrections: %s
  notify:
    origin: /federator/stories
    receivers: [{name: chat, url: "%s", keyFile: %s, caFile: %s}]
listen: {serve: 127.0.0.1:0, admin: 127.0.0.1:0}
log: {format: text, level: info}
%s`

// hookSecret is the secret of webhooks.
const hookSecret = "the secret of all git hosts"

// startFederator serves in a directory, and waits until it listens. The hub is reached
// through its proxy. Corrections and signers are those of the
// configuration, on one line, and traces are lines of it, "" for none.
func startFederator(ctx context.Context, dir string, hub *kube.ControlPlane, in *inbox, corrections, signers, traces string) (*server, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "federator.yaml")
	secret, key, ca := filepath.Join(dir, "webhook"), filepath.Join(dir, "key"), filepath.Join(dir, "ca.crt")
	text := fmt.Sprintf(configuration, hub.KubeconfigFile(), filepath.Join(dir, "index"), filepath.Join(shared.dir, "tls.crt"), filepath.Join(shared.dir, "tls.key"), secret, signers, corrections, in.URL, key, ca, traces)
	for file, content := range map[string]string{config: text, secret: hookSecret + "\n", key: inboxKey + "\n", ca: string(in.ca())} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	served, err := process.Serve(filepath.Join(shared.dir, "bin", "federator"), dir)
	if err != nil {
		return nil, err
	}
	p := &server{served}
	err = kube.Until(ctx, timeout, func() error {
		for _, server := range []string{"serve", "query", "webhook"} {
			if _, err := p.Address(server); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, p.stop(), errors.New(p.Tail(20)))
	}
	return p, nil
}

// stop ends the process regularly, if it has not ended, and waits for it.
func (p *server) stop() error { return p.Stop(timeout) }
