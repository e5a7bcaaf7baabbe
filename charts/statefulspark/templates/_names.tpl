{{- define "statefulspark.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "statefulspark.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "statefulspark.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "statefulspark.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Cluster-scoped objects carry the namespace, so that two releases do not meet. */}}
{{- define "statefulspark.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "statefulspark.fullname" .) | trimPrefix "-" -}}
{{- end -}}

{{- define "statefulspark.selectorLabels" -}}
app.kubernetes.io/name: {{ include "statefulspark.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "statefulspark.labels" -}}
{{ include "statefulspark.selectorLabels" . }}
app.kubernetes.io/part-of: statefulspark
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "statefulspark.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "statefulspark.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: name the service account, or set serviceAccount.create: true" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "statefulspark.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "statefulspark.webhookSecretName" -}}
{{- default (printf "%s-webhook" (include "statefulspark.fullname" .)) .Values.webhook.certificate.secretName -}}
{{- end -}}

{{/* The canary is in the operator's own namespace, so that must be among those that it watches. */}}
{{- define "statefulspark.canary" -}}
{{- and .Values.canary.enabled (or (empty .Values.watchNamespaces) (has .Release.Namespace .Values.watchNamespaces)) -}}
{{- end -}}

{{/* Namespaces in which jobs are looked after, separated by commas; empty for all. */}}
{{- define "statefulspark.watchNamespaces" -}}
{{- .Values.watchNamespaces | uniq | sortAlpha | join "," -}}
{{- end -}}


{{/* Peers that may reach the API of drivers, as JSON: the operator itself and what the values name; empty when jobs get no policy. */}}
{{- define "statefulspark.jobApiFrom" -}}
{{- if .Values.jobNetworkPolicy.enabled -}}
{{- $labels := include "statefulspark.selectorLabels" . | fromYaml -}}
{{- $namespace := dict "matchLabels" (dict "kubernetes.io/metadata.name" .Release.Namespace) -}}
{{- $operator := dict "namespaceSelector" $namespace "podSelector" (dict "matchLabels" $labels) -}}
{{- concat (list $operator) .Values.jobNetworkPolicy.apiFrom | toJson -}}
{{- end -}}
{{- end -}}
