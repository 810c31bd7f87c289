if [[ $cancelled == no && ($code -eq 0 || ($code -eq 75 && $TRAIN_ON_75 == yes)) ]]; then
  run_training
  exit
fi
