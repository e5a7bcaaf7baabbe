{{/*
What a driver does with its service account: the role that the operator makes for each job (builders/children.py; a test compares them).
RBAC lets nobody grant what he does not have himself, so the operator has these too.
*/}}
{{- define "statefulspark.driverRules" -}}
# Spark makes executor pods, watches them, labels and removes them.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete, deletecollection]
# Spark keeps the executors' settings in a config map.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, delete, deletecollection]
{{- end -}}

{{/*
What the operator needs in the whole cluster to let a namespace go: with the namespace its Roles go too, often before the jobs that wait there
for the finalizer to be taken off. With watchNamespaces this is all that it may do outside of them.
*/}}
{{- define "statefulspark.namespaceRules" -}}
# A namespace that is being deleted takes nothing new.
- apiGroups: [""]
  resources: [namespaces]
  {{- with .Values.watchNamespaces }}
  resourceNames: {{ . | uniq | sortAlpha | toJson }}
  {{- end }}
  verbs: [get]
{{- if .Values.watchNamespaces }}
# Sees that its own resources are being deleted, and takes its finalizer off.
- apiGroups: [statefulspark.io]
  resources: [statefulsparkjobs, statesnapshots]
  verbs: [get, list, watch, patch]
{{- end }}
{{- end -}}

{{/* What the operator does in a namespace with jobs. */}}
{{- define "statefulspark.operatorRules" -}}
{{ include "statefulspark.driverRules" . }}
# Its own resources: it reads them, keeps its finalizer on them, makes and prunes snapshots.
- apiGroups: [statefulspark.io]
  resources: [statefulsparkjobs]
  verbs: [get, list, watch, patch]
- apiGroups: [statefulspark.io]
  resources: [statesnapshots]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [statefulspark.io]
  resources: [statefulsparkjobs/status, statesnapshots/status]
  verbs: [patch]
# Children of a job that Spark's rules above do not cover already; server-side apply is patch, and create when there is none.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [watch, patch]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch]
# Tokens and certificates of jobs. Nothing else: get, list, watch and update show a Secret, patch answers with it, and so does delete as a dry run.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
# Who may connect to a job's pods.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch{{ if .Values.jobNetworkPolicy.enabled }}, create, patch{{ end }}]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, create, patch] # list tells which version of them the API server has
- apiGroups: [""]
  resources: [events]
  verbs: [create]
# An identity for each job. Where the operator may not make them, it still watches for what it may have made before.
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, watch{{ if .Values.rbac.manageJobRbac }}, create, patch{{ end }}]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch{{ if .Values.rbac.manageJobRbac }}, create, patch{{ end }}]
{{- end -}}
