package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PolicySource is a git repository with Rego packages and the FleetPolicies
// that use them. A new commit becomes active when it has passed all checks.
// Until then the last good commit stays active, but its policies are only
// observed, not enforced. An empty repository is an error and deletes nothing.
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
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name must be a DNS label: at most 63 characters of a-z, 0-9 and -"
type PolicySource struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec defines where policies are read from and what they are allowed to do.
	// +required
	Spec PolicySourceSpec `json:"spec"`

	// status is the most recently observed status of the source. It is written by
	// federator and is read-only for users.
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

// PolicySourceSpec defines where policies are read from and what they are
// allowed to do.
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) || !self.url.matches('^(ssh://|[^/:]+@)')",message="secretRef must be set if url uses SSH: a Secret with identity and known_hosts"
type PolicySourceSpec struct {
	// url is the URL of the git repository: https://host/path,
	// ssh://user@host/path, user@host:path or, if federator is configured to allow
	// it, file:///path. Credentials belong in secretRef.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(https|ssh)://[^/]*:[^/]*@') && !self.matches('^https://[^/]*@')",message="url must not contain credentials: use secretRef"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('http://') && !self.startsWith('git://')",message="http and git URLs are not supported because they are neither private nor authenticated: use https or ssh"
	// +kubebuilder:validation:XValidation:rule="self.matches('^(https|ssh)://[^/[:space:]?#]+(/[^[:space:]?#]*)?$') || self.matches('^file:///[^[:space:]?#]+$') || self.matches('^[A-Za-z0-9._-]+@[A-Za-z0-9._-]+:[^[:space:]]+$') || self.startsWith('http://') || self.startsWith('git://')",message="url must be https://host/path, ssh://user@host/path, user@host:path or file:///path"
	URL string `json:"url"`

	// ref selects the commit to read. Defaults to the HEAD of the repository.
	// +optional
	Ref *GitRef `json:"ref,omitempty"`

	// path is the directory in the repository that contains the policies, relative
	// to its root. Defaults to the root.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(p, p == '..') && !self.contains('\\\\')",message="path must be relative to the root of the repository and must not contain '..' or backslashes"
	Path string `json:"path,omitempty"`

	// interval is how often the repository is checked for new commits, between 10s
	// and 24h. Defaults to 5m.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="interval must be between 10s and 24h"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// timeout is the maximum duration of one fetch, between 1s and 10m. Defaults
	// to 1m.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="timeout must be between 1s and 10m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// secretRef names a Secret with the credentials for the repository. It is
	// required for SSH. Keys of the Secret:
	//
	// - username and password: basic authentication. GitHub, GitLab and Gitea
	//   accept a token as the password.
	// - token: a bearer token.
	// - identity and known_hosts: an SSH private key and the known host keys;
	//   passphrase, if the key is encrypted.
	// - ca.crt: additional CA certificates to trust.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// verification requires commits or annotated tags to be signed. If unset,
	// signatures are not checked.
	// +optional
	Verification *Verification `json:"verification,omitempty"`

	// ceiling limits what the policies of this source are allowed to do, whatever
	// their FleetPolicies specify. By default they may only observe.
	// +optional
	// +kubebuilder:default={}
	Ceiling Ceiling `json:"ceiling,omitzero"`

	// maxDiff is the maximum number of verdicts on the live fleet that a new
	// commit may change in order to become active. If unset, the number is not
	// limited.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxDiff *int32 `json:"maxDiff,omitempty"`

	// rollout has a commit that changes packages roll out, instead of taking effect
	// everywhere at once: its versions are judged beside those in effect first, and
	// then take their place in one wave of members after another. The commit is
	// active once all of them have. spec.rollout of a FleetPolicy takes precedence
	// for its policy. If unset, a commit that passes all gates is active at once.
	// +optional
	Rollout *VersionRollout `json:"rollout,omitempty"`

	// external are documents from outside the fleet, which policies of any source
	// read as data.fleet.external[name of this source][name]. Verdicts of policies
	// that read them are only shown to those who may get this PolicySource.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	External []ExternalDocument `json:"external,omitempty"`

	// maxPrune is the maximum number of FleetPolicies applied by this source that
	// one commit may delete. To allow a commit to delete more, set the annotation
	// federator.dev/allow-prune to its full hash. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxPrune *int32 `json:"maxPrune,omitempty"`
}

// GitRef selects a commit. Exactly one of its fields must be set.
// +kubebuilder:validation:XValidation:rule="[has(self.branch), has(self.tag), has(self.commit), has(self.name)].filter(x, x).size() == 1",message="exactly one of branch, tag, commit and name must be set"
type GitRef struct {
	// branch is the name of a branch, without refs/heads/.
	// +optional
	// +kubebuilder:validation:MaxLength=244
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^-/.~^:?*[:cntrl:] \\\\\\\\\\\\[][^~^:?*[:cntrl:] \\\\\\\\\\\\[]*$') && !self.contains('..') && !self.contains('@{') && !self.contains('//') && !self.endsWith('/') && !self.endsWith('.') && !self.endsWith('.lock')",message="invalid branch name: see git-check-ref-format(1)"
	Branch string `json:"branch,omitempty"`

	// tag is the name of a tag, without refs/tags/.
	// +optional
	// +kubebuilder:validation:MaxLength=244
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^-/.~^:?*[:cntrl:] \\\\\\\\\\\\[][^~^:?*[:cntrl:] \\\\\\\\\\\\[]*$') && !self.contains('..') && !self.contains('@{') && !self.contains('//') && !self.endsWith('/') && !self.endsWith('.') && !self.endsWith('.lock')",message="invalid tag name: see git-check-ref-format(1)"
	Tag string `json:"tag,omitempty"`

	// commit is the full hash of a commit. Some servers only serve commits that a
	// branch or tag points to.
	// +optional
	Commit CommitHash `json:"commit,omitempty"`

	// name is the full name of any other ref, such as refs/pull/7/head.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^refs/[^~^:?*[:cntrl:] \\\\\\\\\\\\[]+$') && !self.contains('..') && !self.contains('@{') && !self.contains('//') && !self.endsWith('/') && !self.endsWith('.') && !self.endsWith('.lock')",message="name must be a full ref name, starting with refs/"
	Name string `json:"name,omitempty"`
}

// SecretReference names a Secret on the hub. It must be in a namespace in
// which federator is allowed to read Secrets.
type SecretReference struct {
	// namespace is the namespace of the Secret.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`

	// name is the name of the Secret.
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

// VerificationMode defines which kinds of signatures are accepted.
// +kubebuilder:validation:Enum=SSH;PGP;Any
type VerificationMode string

// The modes of verification.
const (
	VerifySSH VerificationMode = "SSH"
	VerifyPGP VerificationMode = "PGP"
	VerifyAny VerificationMode = "Any"
)

// Verification defines whose signatures are trusted.
type Verification struct {
	// mode defines which kinds of signatures are accepted. Valid values are:
	//
	// - SSH: SSH signatures.
	// - PGP: PGP signatures.
	// - Any (default): either.
	// +optional
	// +kubebuilder:default=Any
	Mode VerificationMode `json:"mode,omitempty"`

	// secretRef names a Secret with the trusted public keys: SSH keys in
	// allowed_signers, in the format of ssh-keygen(1), and PGP keys in
	// keyring.asc, ASCII-armored.
	// +required
	SecretRef SecretReference `json:"secretRef"`
}
