# METADATA
# title: Apps with replicas have a disruption budget in every region
# description: |
#   Whoever drains nodes, an upgrade for one, may evict all replicas of a Deployment or
#   StatefulSet at once unless a PodDisruptionBudget selects them. Judged is what has
#   more than one replica, in each member by itself; where the same app has a budget of
#   its name in other members, the finding says so: somebody wanted it. The remedy
#   makes a budget of the app's name, with the maxUnavailable on which those other
#   members agree, or else that of the parameter, and is left out if the name is taken.
#   What a budget allows, federator does not judge here. Because other members are
#   asked, findings are Unknown, and corrected nowhere, as long as any member's budgets
#   are not known; the parameter elsewhere says not to ask.
# custom:
#   severity: medium
#   kinds: ["Deployment.apps", "StatefulSet.apps"]
#   remedies:
#   - {action: apply, kind: PodDisruptionBudget.policy}
#   parameters:
#     type: object
#     properties:
#       elsewhere:
#         description: Whether the budgets of other members are looked at.
#         type: boolean
#         default: true
#       maxUnavailable:
#         description: How many replicas the budget of the remedy gives up at once.
#         type: integer
#         minimum: 1
#         default: 1
package federator.availability.no_disruption_budget

import data.federator.lib.members
import data.federator.lib.selector

violation contains finding if {
	unprotected
	not correctable
}

violation contains object.union(finding, {"remedy": {
	"action": "apply",
	"target": {"member": input.ref.member, "kind": "PodDisruptionBudget.policy", "namespace": input.ref.namespace, "name": input.ref.name},
	"object": {
		"apiVersion": "policy/v1",
		"kind": "PodDisruptionBudget",
		"metadata": {"namespace": input.ref.namespace, "name": input.ref.name},
		"spec": {"maxUnavailable": limit, "selector": input.object.spec.selector},
	},
}}) if {
	unprotected
	correctable
}

finding := {
	"msg": sprintf("no PodDisruptionBudget selects its %d replicas%s", [input.object.spec.replicas, wanted]),
	"details": {"elsewhere": object.keys(others)},
}

unprotected if {
	input.ref.kind in {"Deployment.apps", "StatefulSet.apps"}
	is_number(input.object.spec.replicas)
	input.object.spec.replicas > 1
	not protected
}

protected if {
	some budget in data.fleet.objects["PodDisruptionBudget.policy"][input.ref.member][input.ref.namespace]
	selector.matches(budget.spec.selector, labels)
}

default labels := {}

labels := input.object.spec.template.metadata.labels if is_object(input.object.spec.template.metadata.labels)

# others are the budgets of other members that select what is judged here.
others[member] := object.get(budget, ["spec", "maxUnavailable"], null) if {
	input.parameters.elsewhere
	some member, budget in data.fleet.by_name["PodDisruptionBudget.policy"][input.ref.namespace][input.ref.name]
	member != input.ref.member
	selector.matches(budget.spec.selector, labels)
}

default wanted := ""

wanted := sprintf(", as one does in %s", [members.few(object.keys(others))]) if count(others) > 0

# The budget selects what the app itself does, which is never everything.
correctable if {
	selector.matches(input.object.spec.selector, labels)
	not selector.matches(input.object.spec.selector, {})
	not data.fleet.by_name["PodDisruptionBudget.policy"][input.ref.namespace][input.ref.name][input.ref.member]
}

limit := min(agreed) if {
	agreed := {allowed | some allowed in others}
	count(agreed) == 1
	some allowed in agreed
	useful(allowed)
} else := input.parameters.maxUnavailable

useful(allowed) if {
	is_number(allowed)
	allowed > 0
}

useful(allowed) if {
	is_string(allowed)
	regex.match(`^[1-9][0-9]?%$`, allowed)
}
