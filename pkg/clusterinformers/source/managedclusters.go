package source

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ocmv1 "open-cluster-management.io/api/cluster/v1"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// ManagedClustersOptions is a source of members that are ManagedClusters of Open Cluster
// Management. They are reached through the user server of its cluster-proxy, which forwards what
// comes for /<cluster> to the cluster's API server, with the token of a ManagedServiceAccount that
// all of them have. A member is called managedcluster/<name>. All but Namespaces are required.
type ManagedClustersOptions struct {
	Config         *rest.Config
	ProxyURL       string // of the user server, such as https://cluster-proxy-addon-user.open-cluster-management-addon.svc:9092
	CAFile         string // certificates (PEM) that the user server is verified by
	ServiceAccount string // name of the ManagedServiceAccount, in the namespace of each cluster
	Logger         *slog.Logger
}

const (
	// managedClusterNamespace is the first half of the names of such members: ManagedClusters
	// have no namespace.
	managedClusterNamespace = "managedcluster"
	managedClusterKind      = "ManagedCluster"

	// managedAccountLabel is on Secrets with the token of a ManagedServiceAccount
	// (open-cluster-management.io/managed-serviceaccount, pkg/common).
	managedAccountLabel = "authentication.open-cluster-management.io/is-managed-serviceaccount=true"
)

// NewManagedClusters returns the source, or what is wrong with the options.
func NewManagedClusters(o ManagedClustersOptions) (clusterinformers.Source, error) {
	const source = "ManagedClusters"
	switch {
	case !ValidProxyURL(o.ProxyURL):
		return nil, errors.New(source + ": ProxyURL is not a URL such as https://host:9092")
	case len(validation.IsDNS1123Subdomain(o.ServiceAccount)) > 0:
		return nil, fmt.Errorf("%s: ServiceAccount %q is not the name of a ManagedServiceAccount", source, o.ServiceAccount)
	case o.CAFile == "":
		return nil, errors.New(source + ": CAFile is required")
	}
	proxy := &clusterProxy{url: strings.TrimSuffix(o.ProxyURL, "/"), file: o.CAFile, account: o.ServiceAccount, log: o.Logger}
	return newHubObjects(hubOptions{o.Config, nil, o.Logger}, memberObjects{
		source: source, versions: []schema.GroupVersion{ocmv1.GroupVersion}, resource: "managedclusters", kind: managedClusterKind, clusterScoped: true,
		trim: func(u *unstructured.Unstructured) description { return trimManagedCluster(u, proxy) },
		selectSecrets: func(o *metav1.ListOptions) {
			// By name, as a rule of RBAC for a name allows no list of others.
			o.FieldSelector, o.LabelSelector = fields.OneTermEqualSelector("metadata.name", proxy.account).String(), managedAccountLabel
		},
		keepOf: func(s *corev1.Secret) map[string][]byte { return keepKeys(s.Data, corev1.ServiceAccountTokenKey) },
		files:  []string{o.CAFile}, reload: proxy.reload,
	})
}

// ValidProxyURL reports whether a URL may be that of a user server. One that is not may have a password.
func ValidProxyURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// clusterProxy is how the user server is reached.
type clusterProxy struct {
	url, file, account string
	log                *slog.Logger

	ca  []byte
	err error // instead of ca
}

// reload reads the certificates again. A file without any, as one that is being written, changes nothing.
func (p *clusterProxy) reload() {
	ca, err := readFile(p.file)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(ca) {
		err = fmt.Errorf("%s holds no certificate", p.file)
	}
	switch {
	case err == nil:
		p.ca, p.err = ca, nil
	case p.ca == nil:
		p.err = err
	default:
		p.log.Warn("the certificates of cluster-proxy cannot be read: those read before are used", "error", err)
	}
}

// managedCluster is what is kept of a ManagedCluster.
type managedCluster struct {
	hubObject

	proxy            *clusterProxy
	accepted, joined bool
	err              error // it is not understood
}

func trimManagedCluster(u *unstructured.Unstructured, proxy *clusterProxy) *managedCluster {
	c := &managedCluster{hubObject: hubObjectOf(u), proxy: proxy}
	var typed ocmv1.ManagedCluster
	c.err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &typed)
	c.accepted = typed.Spec.HubAcceptsClient
	c.joined = meta.IsStatusConditionTrue(typed.Status.Conditions, ocmv1.ManagedClusterConditionJoined)
	c.facts.Version = strings.Clone(clip.Text(typed.Status.Version.Kubernetes, maxVersion))
	return c
}

// maxVersion bounds what is kept of a version that somebody wrote, in bytes.
const maxVersion = 256

// member implements description.
func (c *managedCluster) member(all secrets) described {
	s := c.spec(managedClusterKind)
	s.Name = managedClusterNamespace + "/" + c.Name
	token, _ := all.get(c.Name, c.proxy.account)
	s.Credentials = "Secret " + c.Name + "/" + c.proxy.account
	s.Uninitialized = !c.joined && c.err == nil
	switch {
	case c.err != nil:
		refuse(&s, connection.InvalidKubeconfig, "the ManagedCluster is not understood: %v", c.err)
	case !c.joined:
		refuse(&s, connection.NotInitialized, "the ManagedCluster has not joined")
	case !c.accepted:
		refuse(&s, connection.NotAccepted, "the ManagedCluster is not accepted (spec.hubAcceptsClient)")
	case c.proxy.err != nil:
		refuse(&s, connection.NoCA, "the certificates of cluster-proxy cannot be read: %v", c.proxy.err)
	case len(token[corev1.ServiceAccountTokenKey]) == 0:
		all.refuse(&s, c.Name, "Secret %s of a ManagedServiceAccount, with key %q, not found", c.proxy.account, corev1.ServiceAccountTokenKey)
	}
	if s.Refused != nil {
		return described{Spec: s}
	}
	s.Kubeconfig, s.Refused = writeKubeconfig(
		&clientcmdapi.Cluster{Server: c.proxy.url + "/" + c.Name, CertificateAuthorityData: c.proxy.ca},
		&clientcmdapi.AuthInfo{Token: strings.TrimSpace(string(token[corev1.ServiceAccountTokenKey]))},
	)
	return described{Spec: s}
}
