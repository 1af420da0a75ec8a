package chart

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
)

// secrets are all that the members of the test serve.
type secrets struct{}

func (secrets) Resources() ([]queryapi.ServedResource, <-chan struct{}) {
	return []queryapi.ServedResource{{Kind: "Secret", Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Singular: "secret", Namespaced: true}}, nil
}

func (secrets) LastContact(string, aggregate.Kind) time.Time { return time.Time{} }

// TestHelm_ListsReleasesOfAMember where values of Secrets are kept, and says why it
// lists none where they are not.
func TestHelm_ListsReleasesOfAMember(t *testing.T) {
	var release bytes.Buffer
	zip := gzip.NewWriter(&release)
	_, err := zip.Write([]byte(`{"name":"web","namespace":"shop","version":1,"info":{"status":"deployed","first_deployed":"2026-01-01T00:00:00Z","last_deployed":"2026-01-01T00:00:00Z"},"chart":{"metadata":{"name":"shop","version":"1.2.3","apiVersion":"v2"}}}`))
	must(t, err)
	must(t, zip.Close())
	value := base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString(release.Bytes())))
	for _, cut := range []bool{false, true} {
		if cut {
			value = ""
		}
		kubeconfig := serveSecret(t, cut, fmt.Sprintf(`{"apiVersion":"v1","data":{"release":%q},"kind":"Secret","metadata":{"labels":{"name":"web","owner":"helm","status":"deployed","version":"1"},"name":"sh.helm.release.v1.web.v1","namespace":"shop"},"type":"helm.sh/release.v1"}`, value))
		stdout, stderr, err := run(t, "helm", "list", "--kubeconfig", kubeconfig, "--namespace", "shop")
		listed, warned := strings.Contains(stdout, "shop-1.2.3"), strings.Contains(stderr, "keepSecretValues")
		if err != nil || listed == cut || warned != cut {
			t.Errorf("values cut %v: %v\n%s%s", cut, err, stdout, stderr)
		}
	}
}

// serveSecret serves one Secret of one member until the test ends, and returns a
// kubeconfig for the member.
func serveSecret(t *testing.T, cut bool, body string) (kubeconfig string) {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	must(t, err)
	must(t, index.PutMember(aggregate.Member{Name: "fleet/one", UID: "one", Version: "v1.36.0"}))
	scope, err := index.OpenScope("fleet/one", "Secret", "v1")
	must(t, err)
	scope.SetStatus(aggregate.Status{State: aggregate.Synced})
	scope.Upsert(scope.Item(&aggregate.Record{
		Namespace: "shop", Name: "sh.helm.release.v1.web.v1", UID: "u", ResourceVersion: "1", Body: []byte(body),
		Labels: []aggregate.Label{{Key: "name", Value: "web"}, {Key: "owner", Value: "helm"}, {Key: "status", Value: "deployed"}, {Key: "version", Value: "1"}},
	}))
	_, err = scope.Commit()
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server, err := queryapi.New(queryapi.Options{
		Index: index, Fleet: secrets{}, Logger: slog.New(slog.DiscardHandler), Listener: l, Local: true, ValuesRedacted: cut,
	})
	must(t, err)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://" + l.Addr().String() + "/members/fleet/one", CertificateAuthorityData: server.CertificateAuthority()}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: server.Token()}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, kubeconfig))
	return kubeconfig
}
