package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PolicySource is a git repository with Rego packages, and FleetPolicies that use
// them. A commit becomes active when it passes all gates; until then the last good
// one stays, observed and not enforced. An emptied repository is an error, never a
// deletion.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ps,categories=federator
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Max mode",type=string,JSONPath=`.spec.ceiling.maxMode`
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.activeCommit.hash`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Contact",type=date,JSONPath=`.status.lastContact`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ref",type=string,priority=1,JSONPath=`.status.activeCommit.ref`
// +kubebuilder:printcolumn:name="Path",type=string,priority=1,JSONPath=`.spec.path`
// +kubebuilder:printcolumn:name="Newest",type=string,priority=1,JSONPath=`.status.observedCommit.hash`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="the name of a PolicySource is a DNS label: at most 63 of a-z, 0-9 and -"
type PolicySource struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is what is wanted.
	// +required
	Spec PolicySourceSpec `json:"spec"`

	// Status is what has come of it; federator writes it.
	// +optional
	Status PolicySourceStatus `json:"status,omitzero"`
}

// PolicySourceList is a list of PolicySources.
//
// +kubebuilder:object:root=true
type PolicySourceList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []PolicySource `json:"items"`
}

// PolicySourceSpec says where policies are read, and what may come of them.
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) || !self.url.matches('^(ssh://|[^/:]+@)')",message="ssh takes a secretRef, with identity and known_hosts"
type PolicySourceSpec struct {
	// URL is https://, ssh://, user@host:path or, where federator allows it, file://.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(https|ssh)://[^/]*:[^/]*@') && !self.matches('^https://[^/]*@')",message="credentials belong into secretRef, not into the url"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('http://') && !self.startsWith('git://')",message="http and git are neither private nor authentic: use https or ssh"
	// +kubebuilder:validation:XValidation:rule="self.matches('^(https|ssh)://[^/[:space:]?#]+(/[^[:space:]?#]*)?$') || self.matches('^file:///[^[:space:]?#]+$') || self.matches('^[A-Za-z0-9._-]+@[A-Za-z0-9._-]+:[^[:space:]]+$') || self.startsWith('http://') || self.startsWith('git://')",message="a url is https://host/path, ssh://user@host/path, user@host:path or file:///path"
	URL string `json:"url"`

	// Ref is which commit to read; the remote's HEAD by default.
	// +optional
	Ref *GitRef `json:"ref,omitempty"`

	// Path of the directory with policies; the root by default.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(p, p == '..') && !self.contains('\\\\')",message="a path is relative to the repository's root, without '..'"
	Path string `json:"path,omitempty"`

	// Interval between looks at the repository.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="the interval is from 10s to 24h"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// Timeout of one fetch.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="the timeout is from 1s to 10m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// SecretRef is a Secret to log in with. Its keys: username and password, where
	// GitHub, GitLab and Gitea take tokens as the password; or token, a bearer token;
	// or identity, an SSH private key, with known_hosts and, if it has one,
	// passphrase. ca.crt has further certificates to trust.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// Verification demands signatures of commits, or of annotated tags. Nobody's
	// signature is asked for by default.
	// +optional
	Verification *Verification `json:"verification,omitempty"`

	// Ceiling is the most that may come of these policies, whatever FleetPolicies say.
	// By default they may only be observed.
	// +optional
	// +kubebuilder:default={}
	Ceiling Ceiling `json:"ceiling,omitzero"`

	// MaxDiff is how many verdicts on the live fleet a commit may change to become
	// active; any number by default.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxDiff *int32 `json:"maxDiff,omitempty"`

	// MaxPrune is how many FleetPolicies one commit may delete, of those that this
	// source has applied. The annotation federator.dev/allow-prune lifts it.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxPrune *int32 `json:"maxPrune,omitempty"`
}

// GitRef is which commit to read: one of its fields.
// +kubebuilder:validation:XValidation:rule="[has(self.branch), has(self.tag), has(self.commit), has(self.name)].filter(x, x).size() == 1",message="a ref is one of branch, tag, commit and name"
type GitRef struct {
	// Branch is the name below refs/heads/.
	// +optional
	// +kubebuilder:validation:MaxLength=244
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^-/.~^:?*[:cntrl:] \\\\\\\\\\\\[][^~^:?*[:cntrl:] \\\\\\\\\\\\[]*$') && !self.contains('..') && !self.contains('@{') && !self.contains('//') && !self.endsWith('/') && !self.endsWith('.') && !self.endsWith('.lock')",message="this cannot be the name of a branch: see git-check-ref-format(1)"
	Branch string `json:"branch,omitempty"`

	// Tag is the name below refs/tags/.
	// +optional
	// +kubebuilder:validation:MaxLength=244
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^-/.~^:?*[:cntrl:] \\\\\\\\\\\\[][^~^:?*[:cntrl:] \\\\\\\\\\\\[]*$') && !self.contains('..') && !self.contains('@{') && !self.contains('//') && !self.endsWith('/') && !self.endsWith('.') && !self.endsWith('.lock')",message="this cannot be the name of a tag: see git-check-ref-format(1)"
	Tag string `json:"tag,omitempty"`

	// Commit is the full hash. Not every server serves one that no name leads to.
	// +optional
	Commit CommitHash `json:"commit,omitempty"`

	// Name is any other full name, such as refs/pull/7/head.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^refs/[^~^:?*[:cntrl:] \\\\\\\\\\\\[]+$') && !self.contains('..') && !self.contains('@{') && !self.contains('//') && !self.endsWith('/') && !self.endsWith('.') && !self.endsWith('.lock')",message="a name is a full one below refs/"
	Name string `json:"name,omitempty"`
}

// SecretReference names a Secret on the hub, in a namespace that federator may read
// Secrets of.
type SecretReference struct {
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`

	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
}

// Keys of the Secrets that PolicySources refer to.
const (
	UsernameKey   = "username"
	PasswordKey   = "password"
	TokenKey      = "token"
	IdentityKey   = "identity"
	PassphraseKey = "passphrase"
	KnownHostsKey = "known_hosts"
	CAKey         = "ca.crt"

	AllowedSignersKey = "allowed_signers" // of SSH signatures, as ssh-keygen(1) describes it
	KeyringKey        = "keyring.asc"     // of PGP signatures: armored public keys
)

// VerificationMode is which signatures are trusted.
// +kubebuilder:validation:Enum=SSH;PGP;Any
type VerificationMode string

// The modes of verification.
const (
	VerifySSH VerificationMode = "SSH"
	VerifyPGP VerificationMode = "PGP"
	VerifyAny VerificationMode = "Any"
)

// Verification says whose signatures are trusted.
type Verification struct {
	// Mode is SSH, PGP or, by default, Any of them.
	// +optional
	// +kubebuilder:default=Any
	Mode VerificationMode `json:"mode,omitempty"`

	// SecretRef is a Secret with public keys: allowed_signers, as ssh-keygen(1)
	// describes it, and keyring.asc, armored PGP keys.
	// +required
	SecretRef SecretReference `json:"secretRef"`
}

// Verb is a way to correct something, as remedies have it.
// +kubebuilder:validation:Enum=apply;patch;delete
type Verb string

// The verbs.
const (
	Apply  Verb = "apply"
	Patch  Verb = "patch"
	Delete Verb = "delete"
)

// Ceiling is the most that may come of a source's policies. It is set on the hub,
// never by the repository.
// +kubebuilder:validation:XValidation:rule="!has(self.maxMode) || self.maxMode == 'Observe' || has(self.actions) && size(self.actions) > 0",message="a ceiling above Observe says which actions it allows: verbs and kinds"
type Ceiling struct {
	// MaxMode is the highest mode.
	// +optional
	// +kubebuilder:default=Observe
	MaxMode Mode `json:"maxMode,omitempty"`

	// Members that may be written to; all by default.
	// +optional
	Members MemberSelector `json:"members,omitzero"`

	// Namespaces that may be written to, patterns, where "" is whatever has no
	// namespace; all by default.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	Namespaces []NamespacePattern `json:"namespaces,omitempty"`

	// Actions that are allowed; none by default.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Actions []AllowedAction `json:"actions,omitempty"`
}

// AllowedAction allows all its verbs on all its kinds.
type AllowedAction struct {
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	Verbs []Verb `json:"verbs"`

	// Kinds, such as Deployment.apps, or "*" for all that are not protected.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:XValidation:rule="size(self) == 1 || !('*' in self)",message="'*' stands alone: it is all kinds"
	Kinds []KindOrAll `json:"kinds"`
}

// KindOrAll is a Kind, or "*".
// +kubebuilder:validation:MaxLength=317
// +kubebuilder:validation:Pattern=`^(\*|[A-Za-z][A-Za-z0-9]{0,62}(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$`
// +kubebuilder:validation:XValidation:rule="!self.matches('^[A-Za-z0-9]+[.]v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?([.]|$)')",message="a kind is written without its version, such as Deployment.apps"
type KindOrAll string

// AllKinds is "*".
const AllKinds KindOrAll = "*"
