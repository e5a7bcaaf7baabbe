{{/* The operator's settings (operator/src/statefulspark_operator/settings.py); a test compares the names. */}}
{{- define "statefulspark.environment" -}}
- name: STATEFULSPARK_OPERATOR_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: STATEFULSPARK_OPERATOR_POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: STATEFULSPARK_OPERATOR_WATCH_NAMESPACES
  value: {{ include "statefulspark.watchNamespaces" . | quote }}
- name: STATEFULSPARK_OPERATOR_DEPLOYMENT
  value: {{ include "statefulspark.fullname" . | quote }}
- name: STATEFULSPARK_OPERATOR_LEADER_ELECTION
  value: {{ .Values.leaderElection.enabled | quote }}
- name: STATEFULSPARK_OPERATOR_LEASE_NAME
  value: {{ include "statefulspark.fullname" . | quote }}
- name: STATEFULSPARK_OPERATOR_LEASE_DURATION
  value: {{ .Values.leaderElection.leaseDuration | quote }}
- name: STATEFULSPARK_OPERATOR_LEASE_RENEW_DEADLINE
  value: {{ .Values.leaderElection.renewDeadline | quote }}
- name: STATEFULSPARK_OPERATOR_LEASE_RETRY_PERIOD
  value: {{ .Values.leaderElection.retryPeriod | quote }}
- name: STATEFULSPARK_OPERATOR_KEY_SECRET
  value: {{ printf "%s-key" (include "statefulspark.fullname" .) | quote }}
- name: STATEFULSPARK_OPERATOR_HEALTH_PORT
  value: {{ .Values.health.port | quote }}
- name: STATEFULSPARK_OPERATOR_METRICS_PORT
  value: {{ .Values.metrics.port | quote }}
- name: STATEFULSPARK_OPERATOR_WEBHOOK_ENABLED
  value: {{ .Values.webhook.enabled | quote }}
- name: STATEFULSPARK_OPERATOR_WEBHOOK_PORT
  value: {{ .Values.webhook.port | quote }}
- name: STATEFULSPARK_OPERATOR_WEBHOOK_CERTIFICATES
  value: /etc/statefulspark/webhook
- name: STATEFULSPARK_OPERATOR_CANARY
  value: {{ include "statefulspark.canary" . | quote }}
- name: STATEFULSPARK_OPERATOR_CANARY_TIMEOUT
  value: {{ .Values.canary.timeout | quote }}
- name: STATEFULSPARK_OPERATOR_RECONCILE_INTERVAL
  value: {{ .Values.reconcile.interval | quote }}
- name: STATEFULSPARK_OPERATOR_RECONCILE_PARALLELISM
  value: {{ .Values.reconcile.parallelism | quote }}
- name: STATEFULSPARK_OPERATOR_JOB_IMAGE
  value: {{ .Values.jobImage | quote }}
- name: STATEFULSPARK_OPERATOR_DEFAULT_STATE_BACKEND
  value: {{ .Values.defaultStateBackend | quote }}
- name: STATEFULSPARK_OPERATOR_MANAGE_JOB_RBAC
  value: {{ .Values.rbac.manageJobRbac | quote }}
- name: STATEFULSPARK_OPERATOR_STORAGE_LOCATIONS
  value: {{ join "," .Values.tenants.storageLocations | quote }}
- name: STATEFULSPARK_OPERATOR_SNAPSHOT_LOCATIONS
  value: {{ join "," .Values.tenants.snapshotLocations | quote }}
- name: STATEFULSPARK_OPERATOR_STORAGE_ENDPOINTS
  value: {{ join "," .Values.tenants.storageEndpoints | quote }}
- name: STATEFULSPARK_OPERATOR_JOB_API_FROM
  value: {{ include "statefulspark.jobApiFrom" . | quote }}
- name: STATEFULSPARK_OPERATOR_LOG_LEVEL
  value: {{ .Values.log.level | quote }}
- name: STATEFULSPARK_OPERATOR_LOG_FORMAT
  value: {{ .Values.log.format | quote }}
{{- end -}}
