package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Keys of the Secrets that Notifications refer to, besides TokenKey, UsernameKey,
// PasswordKey and CAKey.
const (
	SigningKey           = "key"     // signing secrets, one per line
	CredentialsKey       = "creds"   // of a NATS user: its JWT and seed
	ClientCertificateKey = "tls.crt" // PEM certificates
	ClientPrivateKey     = "tls.key" // the PEM private key of the first of them
)

// NotificationDimension is what transitions have in common that become one
// message.
type NotificationDimension string

// The dimensions. Those of NotificationAlertmanager do not include Type and
// Transition.
const (
	ByPolicy     NotificationDimension = "Policy"
	ByMember     NotificationDimension = "Member"
	BySeverity   NotificationDimension = "Severity"
	ByKind       NotificationDimension = "Kind"
	ByNamespace  NotificationDimension = "Namespace"
	ByObject     NotificationDimension = "Object"
	ByType       NotificationDimension = "Type"
	ByTransition NotificationDimension = "Transition"
)

// NotificationWebhook is an address that messages are posted to: CloudEvents,
// signed as Standard Webhooks describes. Redirects and proxies are not followed,
// the server's certificate is verified, and addresses that federator does not
// connect to are refused.
type NotificationWebhook struct {
	// url is https://host/path, or http:// on the loopback interface. Everybody who
	// may get the Notification sees it: credentials belong in secretRef.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^(https://[^/@[:space:]?#]+|http://(127[.]0[.]0[.]1|localhost|[[]::1[]])(:[0-9]{1,5})?)([/?][^[:space:]#]*)?$')",message="url must be https://host/path without credentials, or http:// on 127.0.0.1, localhost or [::1]"
	URL string `json:"url"`

	// secretRef names a Secret in federator's namespace. Keys of the Secret:
	//
	// - key: the shared secrets that messages are signed with, one per line: whsec_
	//   and base64, as Standard Webhooks writes them, or at least 16 bytes of text. A
	//   message has a signature with each, so that a secret can be replaced.
	// - ca.crt: the CA certificates to trust, instead of those of the system.
	// +required
	SecretRef LocalSecretReference `json:"secretRef"`

	// groupBy is what transitions must have in common to become one message.
	// Defaults to Policy, Type and Transition.
	// +optional
	// +listType=set
	// +kubebuilder:default={Policy,Type,Transition}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Enum=Policy;Member;Severity;Kind;Namespace;Object;Type;Transition
	GroupBy []NotificationDimension `json:"groupBy,omitempty"`

	// wait is how long transitions are collected after the first one, before they
	// are sent, at most 1h. Defaults to 10s.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('1h')",message="wait must be at most 1h"
	Wait *metav1.Duration `json:"wait,omitempty"`

	// interval is the minimum time between the messages of two collections, at
	// most 24h. Defaults to 1m.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="interval must be at most 24h"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// maxMessages is the maximum number of messages of one collection, at most
	// 1000. Further groups become one message that counts them. Defaults to 100.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxMessages *int32 `json:"maxMessages,omitempty"`
}

// NotificationNATS is a stream of NATS JetStream. Each transition is one message,
// whose header Nats-Msg-Id is the key of the transition, so that the stream
// stores it once.
type NotificationNATS struct {
	// servers are the addresses of servers of a cluster, tls://host:port, or
	// nats://host:port on the loopback interface. One of them is used. At most 10
	// addresses are allowed.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=300
	// +kubebuilder:validation:XValidation:rule="self.all(s, s.matches('^(tls://([A-Za-z0-9.-]+|[[][0-9A-Fa-f:.]+[]])|nats://(127[.]0[.]0[.]1|localhost|[[]::1[]])):[0-9]{1,5}$'))",message="servers must be tls://host:port, or nats://host:port on 127.0.0.1, localhost or [::1], without credentials"
	Servers []string `json:"servers"`

	// subject is the first part of the subjects that transitions are published
	// under: tokens of letters, digits, hyphens and underscores, joined by dots. A
	// stream must store them. Defaults to federator.
	// +optional
	// +kubebuilder:default=federator
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`
	Subject string `json:"subject,omitempty"`

	// secretRef names a Secret in federator's namespace. Keys of the Secret, all of
	// which are optional:
	//
	// - token: a token.
	// - username and password: those of a user.
	// - creds: the credentials file of a user, with its JWT and its seed.
	// - ca.crt: the CA certificates to trust, instead of those of the system.
	// - tls.crt and tls.key: a client certificate and its private key.
	//
	// At most one of token, username and creds may be there.
	// +optional
	SecretRef *LocalSecretReference `json:"secretRef,omitempty"`
}

// NotificationAlertmanager is a cluster of Prometheus Alertmanagers. Each group of
// open violations is an alert, which is resolved when all of them are closed.
type NotificationAlertmanager struct {
	// urls are the base URLs of the Alertmanagers, https://host/path, or http:// on
	// the loopback interface. Alerts are sent to every one, as a cluster of
	// Alertmanagers requires it. At most 10 URLs are allowed.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.all(u, u.matches('^(https://[^/@[:space:]?#]+|http://(127[.]0[.]0[.]1|localhost|[[]::1[]])(:[0-9]{1,5})?)(/[^[:space:]?#]*)?$'))",message="urls must be https://host/path without credentials and query, or http:// on 127.0.0.1, localhost or [::1]"
	URLs []string `json:"urls"`

	// secretRef names a Secret in federator's namespace. Keys of the Secret, all of
	// which are optional:
	//
	// - token: a bearer token.
	// - username and password: basic authentication.
	// - ca.crt: the CA certificates to trust, instead of those of the system.
	//
	// At most one of token and username may be there.
	// +optional
	SecretRef *LocalSecretReference `json:"secretRef,omitempty"`

	// groupBy is what violations must have in common to become one alert. They are
	// its labels. Defaults to Policy, Member and Severity.
	// +optional
	// +listType=set
	// +kubebuilder:default={Policy,Member,Severity}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=6
	// +kubebuilder:validation:items:Enum=Policy;Member;Severity;Kind;Namespace;Object
	GroupBy []NotificationDimension `json:"groupBy,omitempty"`

	// interval is how often open alerts are sent again, between 10s and 10m. An
	// alert that is not sent again expires. Defaults to 1m.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('10m')",message="interval must be between 10s and 10m"
	Interval *metav1.Duration `json:"interval,omitempty"`
}
