package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ExternalDocument is a document from outside the fleet, which policies read as
// data.fleet.external[source][name]. Exactly one of file, configMap and https
// must be set.
// +kubebuilder:validation:XValidation:rule="[has(self.file), has(self.configMap), has(self.https)].filter(x, x).size() == 1",message="exactly one of file, configMap and https must be set"
type ExternalDocument struct {
	// name is the key of the document.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-._A-Za-z0-9]*)$`
	Name string `json:"name"`

	// file is the path of a YAML or JSON file, relative to spec.path. It is read
	// from the active commit.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self != '' && !self.startsWith('/') && !self.split('/').exists(p, p == '..' || p == '.' || p == '') && !self.contains('\\\\')",message="file must be a path relative to spec.path, without '.', '..' or backslashes"
	File string `json:"file,omitempty"`

	// configMap is a key of a ConfigMap in federator's namespace, with YAML or
	// JSON. The ConfigMap must have the label federator.dev/external-data: "true".
	// +optional
	ConfigMap *ExternalConfigMap `json:"configMap,omitempty"`

	// https is an address that returns JSON.
	// +optional
	HTTPS *ExternalHTTPS `json:"https,omitempty"`

	// schema is a JSON schema (draft 7, without $ref) that the document must
	// match. If unset, any document is accepted.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Schema *runtime.RawExtension `json:"schema,omitempty"`

	// maxAge is how old the document may be, since it was last read, between 10s
	// and 8760h. Verdicts that read an older one are Unknown. Defaults to 1h.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('8760h')",message="maxAge must be between 10s and 8760h"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`

	// maxBytes is the maximum size of the document in bytes, at most 4194304.
	// Defaults to 1048576.
	// +optional
	// +kubebuilder:default=1048576
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4194304
	MaxBytes *int32 `json:"maxBytes,omitempty"`
}

// ExternalConfigMap names a key of a ConfigMap in federator's namespace.
type ExternalConfigMap struct {
	// name is the name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// key is the key in the ConfigMap's data. A key that ends in .json must have
	// JSON, any other may have YAML.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key"`
}

// ExternalHTTPS is an address that returns JSON. Redirects and proxies are not
// followed, the server's certificate is verified, and addresses that federator
// does not connect to are refused.
type ExternalHTTPS struct {
	// url is https://host/path. Credentials belong in secretRef.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https://[^/@[:space:]?#]+([/?][^[:space:]#]*)?$')",message="url must be https://host/path, without credentials"
	URL string `json:"url"`

	// secretRef names a Secret in federator's namespace. Keys of the Secret:
	//
	// - token: a bearer token.
	// - ca.crt: the CA certificates to trust, instead of those of the system.
	// +optional
	SecretRef *LocalSecretReference `json:"secretRef,omitempty"`

	// caBundle is PEM certificates of the CAs to trust, instead of those of the
	// system and of secretRef.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`

	// interval is how often the address is asked, between 10s and 24h. All
	// federator processes ask at the same times. Defaults to 1m.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="interval must be between 10s and 24h"
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// LocalSecretReference names a Secret in federator's namespace.
type LocalSecretReference struct {
	// name is the name of the Secret.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
}

// ExternalDataLabel is the label of ConfigMaps in federator's namespace that may
// be external documents: its value is "true".
const ExternalDataLabel = "federator.dev/external-data"

// ExternalDocumentStatus is what is known of an external document.
type ExternalDocumentStatus struct {
	// name is the key of the document.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// known is whether verdicts that read the document are Known. If not, they are
	// Unknown, for the reason.
	// +required
	Known bool `json:"known"`

	// reason is Current, or why the document could not be read.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason"`

	// message says what is wrong, and where.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// from is where the content was read, and its version there.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	From string `json:"from,omitempty"`

	// digest is a digest of the content that policies see. Files with the same
	// content have the same digest, however they are written.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Digest string `json:"digest,omitempty"`

	// bytes is the size of the content, as JSON without spaces.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`

	// lastRead is the time at which the document was last found to be so. It is
	// updated at most once a minute while nothing else changes.
	// +optional
	LastRead *metav1.Time `json:"lastRead,omitempty"`
}
