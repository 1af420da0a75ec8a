# Package federator.lib.selector matches labels like a LabelSelector of apimachinery.
package federator.lib.selector

# matches holds if a selector selects labels, which are an object. An empty selector
# selects everything; null and invalid selectors select nothing.
matches(selector, labels) if {
	is_object(selector)
	every key, value in object_of(object.get(selector, "matchLabels", {})) {
		labels[key] == value
	}
	every requirement in list_of(object.get(selector, "matchExpressions", [])) {
		met(requirement, labels)
	}
}

met(requirement, labels) if {
	requirement.operator == "In"
	labels[requirement.key] in requirement.values
}

met(requirement, labels) if {
	requirement.operator == "NotIn"
	value := object.get(labels, requirement.key, null)
	not value in requirement.values
}

met(requirement, labels) if {
	requirement.operator == "Exists"
	object.get(labels, requirement.key, null) != null
}

met(requirement, labels) if {
	requirement.operator == "DoesNotExist"
	object.get(labels, requirement.key, null) == null
}

object_of(x) := x if is_object(x)

object_of(x) := {} if x == null

list_of(x) := x if is_array(x)

list_of(x) := [] if x == null
