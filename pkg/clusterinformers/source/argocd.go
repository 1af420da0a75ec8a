package source

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

// ArgoCDOptions is a source of members that are clusters of Argo CD: Secrets with the label
// argocd.argoproj.io/secret-type=cluster. A member is called <namespace>/<name> of its Secret
// or, where that makes a name of its own, after the cluster's name in Argo CD. Of its annotations those of
// federator and Argo CD are kept. The cluster that
// Argo CD runs in has no Secret unless somebody made one. All are required.
type ArgoCDOptions struct {
	Config     *rest.Config
	Namespaces []string // of Argo CD
	Logger     *slog.Logger
}

// NewArgoCD returns the source, or what is wrong with the options.
func NewArgoCD(o ArgoCDOptions) (clusterinformers.Source, error) {
	if len(o.Namespaces) == 0 {
		return nil, errors.New("Argo CD: at least one of Namespaces is required: federator does not read the Secrets of others") //nolint:staticcheck // a name
	}
	return newHubObjects(hubOptions{o.Config, o.Namespaces, o.Logger}, memberObjects{
		source: "Argo CD", versions: []schema.GroupVersion{corev1.SchemeGroupVersion}, resource: "secrets", kind: "Secret",
		labels: "argocd.argoproj.io/secret-type=cluster",
		trim:   func(u *unstructured.Unstructured) description { return trimArgoCluster(u) },
	})
}

// argoCluster is what is kept of the Secret of a cluster.
type argoCluster struct {
	hubObject

	name, server string
	config       []byte
	narrowed     bool // to some namespaces
	err          error
}

// trimArgoCluster keeps of a Secret what says how the cluster is reached.
func trimArgoCluster(u *unstructured.Unstructured) *argoCluster {
	c := &argoCluster{hubObject: hubObjectOf(u)}
	// Tools keep copies of the whole object in annotations, and this one is a Secret.
	c.facts.Annotations = slices.DeleteFunc(c.facts.Annotations, func(a aggregate.Label) bool {
		return !strings.HasPrefix(a.Key, api.GroupName+"/") && !strings.HasPrefix(a.Key, "argocd.argoproj.io/")
	})
	value := func(key string) string {
		text, _, err := unstructured.NestedString(u.Object, "data", key)
		if err == nil {
			var data []byte
			if data, err = base64.StdEncoding.DecodeString(text); err == nil {
				return string(data)
			}
		}
		c.err = fmt.Errorf("key %q of the Secret is not text", key)
		return ""
	}
	c.name, c.server, c.config = value("name"), value("server"), []byte(value("config"))
	c.narrowed = value("namespaces") != ""
	return c
}

// argoConfig is the JSON of Argo CD's ClusterConfig (pkg/apis/application/v1alpha1/types.go).
type argoConfig struct {
	Username           string          `json:"username"`
	Password           string          `json:"password"`
	BearerToken        string          `json:"bearerToken"`
	TLS                argoTLS         `json:"tlsClientConfig"`
	AWSAuth            json.RawMessage `json:"awsAuthConfig"`
	ExecProvider       json.RawMessage `json:"execProviderConfig"`
	DisableCompression bool            `json:"disableCompression"`
	ProxyURL           string          `json:"proxyUrl"`
}

type argoTLS struct {
	Insecure   bool   `json:"insecure"`
	ServerName string `json:"serverName"`
	CertData   []byte `json:"certData"`
	KeyData    []byte `json:"keyData"`
	CAData     []byte `json:"caData"`
}

// member implements description.
func (c *argoCluster) member(secrets) described {
	s := c.spec("Secret")
	s.Credentials = "Secret " + c.Namespace + "/" + c.Name
	var refused *connection.Refusal
	if s.Kubeconfig, refused = c.kubeconfig(); refused != nil && s.Refused == nil {
		s.Refused = refused
	}
	d := described{Spec: s}
	if name := dnsLabel(c.name); name != "" {
		d.preferred = c.Namespace + "/" + name
	}
	return d
}

// kubeconfig writes down how the cluster is reached. What Argo CD would do and federator does
// not is refused, or left for the checks of kubeconfigs to refuse.
func (c *argoCluster) kubeconfig() ([]byte, *connection.Refusal) {
	if c.err != nil {
		return nil, connection.Refuse(connection.InvalidKubeconfig, "%v", c.err)
	}
	if len(c.config) > memberclient.MaxKubeconfig {
		return nil, connection.Refuse(connection.InvalidKubeconfig, "config of the Secret has %d bytes, more than %d", len(c.config), memberclient.MaxKubeconfig)
	}
	var config argoConfig
	if err := decodeJSON(c.config, &config, false); err != nil {
		return nil, connection.Refuse(connection.InvalidKubeconfig, "config of the Secret: %v", err)
	}
	switch {
	case len(config.AWSAuth) > 0 && !bytes.Equal(config.AWSAuth, []byte("null")):
		return nil, connection.Refuse(connection.ExecPlugin, "config of the Secret has awsAuthConfig, which runs a command")
	case len(config.ExecProvider) > 0 && !bytes.Equal(config.ExecProvider, []byte("null")):
		return nil, connection.Refuse(connection.ExecPlugin, "config of the Secret has execProviderConfig, which runs a command")
	case c.narrowed:
		return nil, connection.Refuse(connection.InvalidKubeconfig, "the cluster is narrowed to some namespaces: federator reads clusters whole")
	}
	return writeKubeconfig(&clientcmdapi.Cluster{
		Server: strings.TrimSpace(c.server), TLSServerName: config.TLS.ServerName, InsecureSkipTLSVerify: config.TLS.Insecure,
		CertificateAuthorityData: config.TLS.CAData, ProxyURL: config.ProxyURL,
	}, &clientcmdapi.AuthInfo{
		Username: config.Username, Password: config.Password, Token: config.BearerToken,
		ClientCertificateData: config.TLS.CertData, ClientKeyData: config.TLS.KeyData,
	})
}

// decodeJSON decodes one JSON value. Its errors say where, and never what, which may be secret.
func decodeJSON(data []byte, into any, strict bool) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if strict {
		d.DisallowUnknownFields()
	}
	err := d.Decode(into)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		return fmt.Errorf("there is more than one JSON value at byte %d", d.InputOffset())
	}
	var syntax *json.SyntaxError
	var field *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("it is not JSON at byte %d", syntax.Offset)
	case errors.As(err, &field):
		return fmt.Errorf("%s is not of type %s at byte %d", field.Field, field.Type, field.Offset)
	case strings.HasPrefix(err.Error(), "json: unknown field"):
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return fmt.Errorf("it is not JSON at byte %d", d.InputOffset())
}
