# Package federator.lib.workload returns Pods: a Pod itself, or the template of a
# Deployment, StatefulSet, DaemonSet, Job or CronJob.
#
# Fields of an object may be missing, null or of another type. That is not an error here:
# the result is undefined or an empty list.
package federator.lib.workload

# spec is the spec of the Pod. There is one rule for each kind, because constants let the
# engine omit fields that a policy does not read.
spec := input.object.spec if input.ref.kind == "Pod"

spec := input.object.spec.template.spec if input.ref.kind == "Deployment.apps"

spec := input.object.spec.template.spec if input.ref.kind == "StatefulSet.apps"

spec := input.object.spec.template.spec if input.ref.kind == "DaemonSet.apps"

spec := input.object.spec.template.spec if input.ref.kind == "Job.batch"

spec := input.object.spec.jobTemplate.spec.template.spec if input.ref.kind == "CronJob.batch"

# templated holds for objects created from a template that is evaluated itself, so that
# they are not reported again. A Pod of a ReplicaSet belongs to a Deployment if it has the
# label that only the Deployment controller sets.
templated if {
	input.ref.kind == "Pod"
	controller.apiVersion == "apps/v1"
	controller.kind in {"DaemonSet", "StatefulSet"}
}

templated if {
	input.ref.kind == "Pod"
	controller.apiVersion == "apps/v1"
	controller.kind == "ReplicaSet"
	input.object.metadata.labels["pod-template-hash"]
}

templated if {
	input.ref.kind == "Pod"
	controller.apiVersion == "batch/v1"
	controller.kind == "Job"
}

templated if {
	input.ref.kind == "Job.batch"
	controller.apiVersion == "batch/v1"
	controller.kind == "CronJob"
}

controller := [owner | some owner in input.object.metadata.ownerReferences; owner.controller == true][0]

# containers are all containers of a Pod, including init and ephemeral containers.
containers(pod) := array.concat(long_running(pod), array.concat(init(pod), ephemeral(pod)))

default long_running(_) := []

long_running(pod) := pod.containers if is_array(pod.containers)

default init(_) := []

init(pod) := pod.initContainers if is_array(pod.initContainers)

default ephemeral(_) := []

ephemeral(pod) := pod.ephemeralContainers if is_array(pod.ephemeralContainers)

# sidecars are the init containers that keep running with the Pod.
sidecars(pod) := [c | some c in init(pod); c.restartPolicy == "Always"]

# name is the name of a container or a volume in messages.
default name(_) := "(unnamed)"

name(container) := container.name if is_string(container.name)
