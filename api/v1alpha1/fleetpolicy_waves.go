package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Wave is a group of members that are corrected together.
type Wave struct {
	// name is the name of the wave. It must be unique within the policy.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// members selects the members of the wave from those that are in no earlier
	// wave. Defaults to all remaining members.
	// +optional
	Members MemberSelector `json:"members,omitzero"`

	// soak is how long the objects that were written must pass the health gate
	// before the next wave starts. It is a duration of up to 720h. Defaults to 0s.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('720h')",message="soak must be at most 720h"
	Soak *metav1.Duration `json:"soak,omitempty"`

	// health is the health that written objects must reach before the next wave
	// starts.
	// +optional
	// +kubebuilder:default={}
	Health HealthGate `json:"health,omitzero"`

	// effect is what must not get worse in the members of the wave, from its start
	// until the next wave starts. If unset, only the health of written objects is
	// checked.
	// +optional
	Effect *EffectGate `json:"effect,omitempty"`
}

// EffectGate defines which verdicts must not get worse in the members of a
// wave. If they do, the policy is halted.
// +kubebuilder:validation:XValidation:rule="has(self.policies) && size(self.policies) > 0 || has(self.unknown) && self.unknown",message="effect must set policies, or unknown to true"
type EffectGate struct {
	// policies are the names of FleetPolicies whose violations in the members of
	// the wave must not become more than they were when it started. At most 20
	// policies are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	Policies []PolicyName `json:"policies,omitempty"`

	// unknown defines whether Unknown verdicts in the members of the wave, of this
	// policy and of the named ones, must not become more either. Defaults to
	// false.
	// +optional
	Unknown bool `json:"unknown,omitempty"`
}

// PolicyName is the name of a FleetPolicy.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
type PolicyName string

// HealthRequirement is the health that is required of written objects. Health
// is assessed as Argo CD does.
// +kubebuilder:validation:Enum=Healthy;NotDegraded;Any
type HealthRequirement string

// Requirements of a HealthGate.
const (
	RequireHealthy     HealthRequirement = "Healthy"     // all objects are Healthy, or their kind has no health
	RequireNotDegraded HealthRequirement = "NotDegraded" // no object is Degraded or Missing
	RequireNothing     HealthRequirement = "Any"         // health is not checked
)

// HealthGate defines the health that the objects written in a wave must reach.
// If they do not, the policy is halted.
type HealthGate struct {
	// require is the health that is required. Health is assessed as Argo CD does.
	// Valid values are:
	//
	// - Healthy (default): every object is Healthy, or its kind has no health.
	// - NotDegraded: no object is Degraded or Missing.
	// - Any: health is not checked.
	// +optional
	// +kubebuilder:default=Healthy
	Require HealthRequirement `json:"require,omitempty"`

	// timeout is how long written objects may take to reach the required health
	// before the policy is halted. A Degraded object halts the policy immediately.
	// It is a duration between 1s and 24h. Defaults to 10m.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="timeout must be between 1s and 24h"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// maxFailed is the percentage of the objects to write in the wave, between 0
	// and 100, that may end Failed, Contended or Superseded after all attempts. If
	// more do, the policy is halted. Defaults to 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxFailed *int32 `json:"maxFailed,omitempty"`
}

// Window is a recurring maintenance window in which corrections may be
// written.
type Window struct {
	// schedule is when the window opens, in cron format: minute, hour, day of
	// month, month and day of week, as in crontab(5). For example, "0 2 * *
	// MON-FRI" opens the window at 02:00 on weekdays.
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^ ]+( [^ ]+){4}$')",message="schedule must have five fields: minute, hour, day of month, month and day of week, such as '0 2 * * MON-FRI'"
	// +kubebuilder:validation:XValidation:rule="self.split(' ').size() != 5 || self.split(' ')[0].upperAscii().matches('^([*]|([0-5]?[0-9])(-([0-5]?[0-9]))?)(/[1-9][0-9]?)?(,([*]|([0-5]?[0-9])(-([0-5]?[0-9]))?)(/[1-9][0-9]?)?)*$')",message="the minute must be 0-59"
	// +kubebuilder:validation:XValidation:rule="self.split(' ').size() != 5 || self.split(' ')[1].upperAscii().matches('^([*]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?(,([*]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?)*$')",message="the hour must be 0-23"
	// +kubebuilder:validation:XValidation:rule="self.split(' ').size() != 5 || self.split(' ')[2].upperAscii().matches('^([*]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?(,([*]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?)*$')",message="the day of the month must be 1-31"
	// +kubebuilder:validation:XValidation:rule="self.split(' ').size() != 5 || self.split(' ')[3].upperAscii().matches('^([*]|(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)(-(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))?)(/[1-9][0-9]?)?(,([*]|(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)(-(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))?)(/[1-9][0-9]?)?)*$')",message="the month must be 1-12 or JAN-DEC"
	// +kubebuilder:validation:XValidation:rule="self.split(' ').size() != 5 || self.split(' ')[4].upperAscii().matches('^([*]|([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT)(-([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT))?)(/[1-9][0-9]?)?(,([*]|([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT)(-([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT))?)(/[1-9][0-9]?)?)*$')",message="the day of the week must be 0-6, where 0 is Sunday, or SUN-SAT"
	Schedule string `json:"schedule"`

	// duration is how long the window stays open, between 1m and 168h.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="duration must be between 1m and 168h"
	Duration metav1.Duration `json:"duration"`

	// timeZone is the time zone of the schedule, a name from the IANA time zone
	// database such as Europe/Berlin. Defaults to UTC.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self != 'Local' && self.matches('^[A-Za-z][-+_A-Za-z0-9]*(/[-+_A-Za-z0-9]+)*$') && timestamp('2020-01-01T00:00:00Z').getFullYear(self) > 0",message="timeZone must be a name from the IANA time zone database, such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
}
